//! The service to register.

use std::collections::BTreeMap;
use std::time::Duration;

/// Consul silently raises shorter values. <https://developer.hashicorp.com/consul/api-docs/agent/check>
pub const MIN_DEREGISTER_AFTER: Duration = Duration::from_secs(60);
/// Below this, three beats per ttl are unreliable.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// Consul's limits for metadata: pairs, bytes of a key, bytes of a value.
const MAX_META: (usize, usize, usize) = (63, 128, 512);

/// A service as clients find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Unique at its agent, and the same for every life of this service on this node: a restart replaces the old
    /// registration.
    pub id: String,
    /// The name that clients look up.
    pub name: String,
    /// The address it listens on; `None`: that of the agent's node.
    pub address: Option<String>,
    /// The port it listens on.
    pub port: u16,
    /// Tags for clients.
    pub tags: Vec<String>,
    /// Metadata for clients.
    pub meta: BTreeMap<String, String>,
    /// How long the catalog waits for a beat before it marks the service critical: 15 s by default. Three beats fit
    /// into it.
    pub ttl: Duration,
    /// How long the service is critical before the agent removes it: 1 m, which is also the minimum.
    pub deregister_after: Duration,
}

/// Why a service cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidService(String);

impl Service {
    /// A service with the defaults.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, port: u16) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            address: None,
            port,
            tags: Vec::new(),
            meta: BTreeMap::new(),
            ttl: Duration::from_secs(15),
            deregister_after: MIN_DEREGISTER_AFTER,
        }
    }

    /// The time between two beats: a third of the ttl.
    #[must_use]
    pub fn beat(&self) -> Duration {
        self.ttl / 3
    }

    /// Rejects services that a catalog would reject or silently change.
    ///
    /// # Errors
    /// Names the value and the rule.
    pub fn check(&self) -> Result<(), InvalidService> {
        let bad = |why: String| Err(InvalidService(why));
        for (what, text) in [("id", &self.id), ("name", &self.name)] {
            let is_odd = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
            if text.is_empty() || text.len() > 200 || text.contains(is_odd) {
                return bad(format!(
                    "the service's {what} {text:?} must have 1 to 200 bytes, and no control characters or line separators"
                ));
            }
        }
        // An agent that is asked for such a path answers with a redirect to another one, so the check never passes.
        if self.id.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return bad(format!(
                "the service's id {:?} is part of a URL: no part of it between slashes may be empty, . or ..",
                self.id
            ));
        }
        if self.ttl < MIN_TTL {
            return bad(format!("the ttl {:?} of the service is below {MIN_TTL:?}", self.ttl));
        }
        if self.deregister_after < MIN_DEREGISTER_AFTER.max(self.ttl) {
            return bad(format!(
                "the time {:?} until the agent removes the service is below its minimum, {:?}",
                self.deregister_after,
                MIN_DEREGISTER_AFTER.max(self.ttl)
            ));
        }
        let (pairs, key_length, value_length) = MAX_META;
        if self.meta.len() > pairs {
            return bad(format!(
                "the service has {} pairs of metadata; at most {pairs} are allowed",
                self.meta.len()
            ));
        }
        for (key, value) in &self.meta {
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if key.is_empty() || key.len() > key_length || !key.chars().all(good) || value.len() > value_length {
                return bad(format!(
                    "the metadata {key:?} must have a key of 1 to {key_length} characters of A-Z a-z 0-9 - _ and a value of \
                     at most {value_length}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_services_are_rejected_before_the_catalog_sees_them() {
        let good = Service::new("web-1", "web", 80);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.beat(), Duration::from_secs(5));
        let refused = |change: fn(&mut Service)| {
            let mut service = good.clone();
            change(&mut service);
            service.check().unwrap_err().to_string()
        };
        assert!(refused(|s| s.deregister_after = Duration::from_secs(30)).contains("60s"));
        assert!(refused(|s| s.ttl = Duration::from_millis(500)).contains("ttl"));
        assert!(refused(|s| s.ttl = Duration::from_secs(90)).contains("90s"));
        assert!(refused(|s| s.id.clear()).contains("id"));
        assert!(refused(|s| s.name = "a\nb".to_owned()).contains("name"));
        for id in ["a//b", "/a", "a/", ".", "..", "a/../b", "a\u{2028}b", "a\u{85}"] {
            let service = Service::new(id, "web", 80);
            assert!(service.check().unwrap_err().to_string().contains("id"), "{id:?}");
        }
        for id in ["web 1", "a/b", "büro", "a.b", "..."] {
            assert_eq!(Service::new(id, "web", 80).check(), Ok(()), "{id}");
        }
        assert!(refused(|s| drop(s.meta.insert("a b".to_owned(), String::new()))).contains("a b"));
    }
}
