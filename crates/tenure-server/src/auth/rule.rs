//! The permissions a route requires, read from its OpenAPI description.

use axum::http::Method;
use serde_json::Value;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::SecurityRequirement;

use super::scope::{Scope, Scopes};

/// The security scheme of the daemon's tokens in the document.
pub(crate) const TOKEN: &str = "token";
/// The security scheme of providers' tokens in the document.
pub(crate) const PROVIDER: &str = "provider";
/// Marks a scope that requires an unrestricted token.
const EVERYWHERE: &str = "everywhere";

/// The permissions one operation requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// No token at all.
    pub(super) open: bool,
    /// Any one of these scopes.
    pub(super) any_of: Scopes,
    /// An unrestricted token.
    pub(super) everywhere: bool,
    /// A provider's token is accepted, too. The route checks which provider.
    pub(super) provider: bool,
    /// The kind of resource in the path.
    pub(super) resource: Resource,
}

/// The kind of resource that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    Daemon,
    Group,
    Roster,
}

/// The rule of a route that is open to everyone.
const OPEN: Rule = Rule {
    open: true,
    any_of: Scopes::NONE,
    everywhere: false,
    provider: false,
    resource: Resource::Daemon,
};

/// The rule of a route that declares none: an unrestricted operator token.
const CLOSED: Rule = Rule {
    open: false,
    any_of: Scopes::OPERATE,
    everywhere: true,
    provider: false,
    resource: Resource::Daemon,
};

impl Rule {
    /// Whether no token is required.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether it is audited, done or refused.
    pub(crate) fn is_operation(&self) -> bool {
        !self.open && self.any_of == Scopes::OPERATE
    }

    /// Whether it may be audited, depending on the request.
    pub(crate) fn may_be_operation(&self) -> bool {
        self.is_operation() || (!self.open && self.any_of.has(Scope::Operate) && self.resource != Resource::Daemon)
    }

    /// Whether it changes something: a read accepts the scope `read`.
    pub(super) fn changes(&self) -> bool {
        !self.open && !self.any_of.has(Scope::Read)
    }

    /// Whether it joins, beats, leaves or acts under a tenure in a group.
    pub(super) fn lives(&self) -> bool {
        self.changes() && self.any_of.has(Scope::Beat) && self.resource == Resource::Group
    }

    fn of(path: &str, operation: &Operation) -> Option<Self> {
        let asked = operation.security.as_ref()?;
        let resource = match path {
            _ if path.starts_with("/v1/groups/{g}") => Resource::Group,
            _ if path.starts_with("/v1/rosters/{r}") => Resource::Roster,
            _ => Resource::Daemon,
        };
        let mut rule = Self {
            open: false,
            resource,
            ..OPEN
        };
        let (mut scopes, mut everywhere) = (Vec::new(), Vec::new());
        for alternative in asked {
            let Value::Object(schemes) = alternative_of(alternative) else {
                return None;
            };
            rule.open |= schemes.is_empty();
            rule.provider |= schemes.contains_key(PROVIDER);
            if let Some(Value::Array(roles)) = schemes.get(TOKEN) {
                let roles: Vec<_> = roles.iter().filter_map(Value::as_str).collect();
                everywhere.push(roles.contains(&EVERYWHERE));
                let named: Vec<Scope> = roles.iter().filter_map(|role| role.parse().ok()).collect();
                // One scope per alternative; an alternative that cannot be parsed grants nothing.
                if let [scope] = named[..] {
                    scopes.push(scope);
                }
            }
        }
        rule.any_of = scopes.into_iter().collect();
        rule.everywhere = everywhere.contains(&true);
        (rule.open || !rule.any_of.is_empty()).then_some(rule)
    }
}

/// `SecurityRequirement` exposes its content only by serialization.
fn alternative_of(requirement: &SecurityRequirement) -> Value {
    serde_json::to_value(requirement).unwrap_or_default()
}

/// The rules of one path, by method.
#[derive(Debug)]
pub(crate) struct Rules(Vec<(Method, Rule)>);

impl Rules {
    /// As declared in the path item.
    pub(crate) fn of(path: &str, item: &PathItem) -> Self {
        let operations = [
            (Method::GET, &item.get),
            (Method::PUT, &item.put),
            (Method::POST, &item.post),
            (Method::DELETE, &item.delete),
            (Method::PATCH, &item.patch),
        ];
        let declared = operations.into_iter().filter_map(|(method, operation)| {
            let operation = operation.as_ref()?;
            Some((method, Rule::of(path, operation).unwrap_or(CLOSED)))
        });
        Self(declared.collect())
    }

    /// No rules: open for every method.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// The same methods without any permission.
    pub(crate) fn opened(self) -> Self {
        Self(self.0.into_iter().map(|(method, _)| (method, OPEN)).collect())
    }

    /// The rule of a method. A method that is not served is open: its 405 reveals no more than the document.
    pub(crate) fn of_method(&self, method: &Method) -> &Rule {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let found = self.0.iter().find(|(known, _)| known == method);
        found.map_or(&OPEN, |(_, rule)| rule)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::auth) fn rule(path: &str, security: Option<Vec<SecurityRequirement>>) -> Option<Rule> {
        let mut operation = Operation::new();
        operation.security = security;
        Rule::of(path, &operation)
    }

    fn token(roles: &[&str]) -> SecurityRequirement {
        SecurityRequirement::new(TOKEN, roles.iter().copied())
    }

    #[test]
    fn rule_follows_the_description() {
        let read = rule("/v1/groups/{g}", Some(vec![token(&["read"]), token(&["beat"])])).unwrap();
        assert_eq!(read.any_of, [Scope::Read, Scope::Beat].into_iter().collect());
        assert_eq!(
            (read.resource, read.everywhere, read.open),
            (Resource::Group, false, false)
        );
        let operate = rule("/v1/rosters/{r}", Some(vec![token(&["operate"])])).unwrap();
        assert!(operate.is_operation() && operate.resource == Resource::Roster);
        let metrics = rule("/metrics", Some(vec![token(&["read", "everywhere"])])).unwrap();
        assert!(metrics.everywhere && metrics.resource == Resource::Daemon);
        let provider = SecurityRequirement::new(PROVIDER, [""; 0]);
        let online = rule("/v1/rosters/{r}/x", Some(vec![token(&["beat"]), provider])).unwrap();
        assert!(online.provider);
        assert_eq!(rule("/livez", Some(vec![SecurityRequirement::default()])), Some(OPEN));
    }

    #[test]
    fn missing_or_invalid_security_is_no_rule() {
        for security in [
            None,
            Some(vec![]),
            Some(vec![token(&[])]),
            Some(vec![token(&["reed"])]),
            Some(vec![token(&["read", "beat"])]),
            Some(vec![SecurityRequirement::new("other", ["read"])]),
        ] {
            assert_eq!(rule("/v1/groups/{g}", security), None);
        }
        const { assert!(!CLOSED.open && CLOSED.everywhere) };
    }
}
