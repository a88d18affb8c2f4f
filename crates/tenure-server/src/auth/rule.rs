//! What a route asks for, read from the description of the route.

use axum::http::Method;
use serde_json::Value;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::SecurityRequirement;

use super::scope::{Scope, Scopes};

/// The name of our tokens in the document.
pub(crate) const TOKEN: &str = "token";
/// The name of the tokens of providers in the document.
pub(crate) const PROVIDER: &str = "provider";
/// What stands beside a scope that only a token for everything has.
const EVERYWHERE: &str = "everywhere";

/// What one operation asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Nothing.
    pub(super) open: bool,
    /// Any of these will do.
    pub(super) any_of: Scopes,
    /// Only a token that is for everything will do.
    pub(super) everywhere: bool,
    /// The token of a provider will do as well; which provider, the route sees to.
    pub(super) provider: bool,
    /// What it is about.
    pub(super) place: Place,
}

/// What a path is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Nowhere,
    Group,
    Roster,
}

/// The rule of what is the same for everybody and tells nothing.
const OPEN: Rule = Rule {
    open: true,
    any_of: Scopes::NONE,
    everywhere: false,
    provider: false,
    place: Place::Nowhere,
};

/// The rule of what declares none: hardly anybody may do it, until somebody has thought about it.
const CLOSED: Rule = Rule {
    open: false,
    any_of: Scopes::OPERATE,
    everywhere: true,
    provider: false,
    place: Place::Nowhere,
};

impl Rule {
    /// Whether it asks nobody.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether it is in the log of what operators do, done or refused.
    pub(crate) fn is_operation(&self) -> bool {
        !self.open && self.any_of == Scopes::OPERATE
    }

    /// Whether it may turn out to be.
    pub(crate) fn may_be_operation(&self) -> bool {
        self.is_operation() || (!self.open && self.any_of.has(Scope::Operate) && self.place != Place::Nowhere)
    }

    /// Whether it changes something: what changes nothing takes `read`, alone or beside others.
    pub(super) fn changes(&self) -> bool {
        !self.open && !self.any_of.has(Scope::Read)
    }

    /// Whether it is part of a member's life in a group.
    pub(super) fn lives(&self) -> bool {
        self.changes() && self.any_of.has(Scope::Beat) && self.place == Place::Group
    }

    fn of(path: &str, operation: &Operation) -> Option<Self> {
        let asked = operation.security.as_ref()?;
        let place = match path {
            _ if path.starts_with("/v1/groups/{g}") => Place::Group,
            _ if path.starts_with("/v1/rosters/{r}") => Place::Roster,
            _ => Place::Nowhere,
        };
        let mut rule = Self {
            open: false,
            place,
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
                // One scope for each way in; what cannot be read is no way in.
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

/// The library keeps the content of a requirement to itself, and writes it.
fn alternative_of(requirement: &SecurityRequirement) -> Value {
    serde_json::to_value(requirement).unwrap_or_default()
}

/// The rules of one path, by method.
#[derive(Debug)]
pub(crate) struct Rules(Vec<(Method, Rule)>);

impl Rules {
    /// As the path declares them.
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

    /// Of what is the same for everybody, whatever the method.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Asks nobody on this path any more.
    pub(crate) fn opened(self) -> Self {
        Self(self.0.into_iter().map(|(method, _)| (method, OPEN)).collect())
    }

    /// The rule of a method. One that is not served is told so to anybody: the document says the same.
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
    fn a_rule_is_what_the_description_says() {
        let read = rule("/v1/groups/{g}", Some(vec![token(&["read"]), token(&["beat"])])).unwrap();
        assert_eq!(read.any_of, [Scope::Read, Scope::Beat].into_iter().collect());
        assert_eq!((read.place, read.everywhere, read.open), (Place::Group, false, false));
        let operate = rule("/v1/rosters/{r}", Some(vec![token(&["operate"])])).unwrap();
        assert!(operate.is_operation() && operate.place == Place::Roster);
        let metrics = rule("/metrics", Some(vec![token(&["read", "everywhere"])])).unwrap();
        assert!(metrics.everywhere && metrics.place == Place::Nowhere);
        let provider = SecurityRequirement::new(PROVIDER, [""; 0]);
        let online = rule("/v1/rosters/{r}/x", Some(vec![token(&["beat"]), provider])).unwrap();
        assert!(online.provider);
        assert_eq!(rule("/livez", Some(vec![SecurityRequirement::default()])), Some(OPEN));
    }

    #[test]
    fn what_declares_nothing_or_nonsense_is_no_rule() {
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
