//! The settings of clearing registrations in Consul away, put together from those of the daemon and the one variable with
//! a secret.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::id::Group;
use tenure_supervise::catalog::consul::{Allowed, RemoteAgents, Token};
use tenure_tls::ClientTls;

use super::{Environment, Settings};
use crate::exit::Usage;

/// The only way to give the secret itself. A command line is read by everybody on the machine.
const SECRET: &str = "TENURE_REGISTRATIONS_TOKEN";
/// Time-out of a request to an agent.
const REQUEST: Duration = Duration::from_secs(2);

/// Whose registrations are cleared away, and at which agents.
#[derive(Debug, Clone)]
pub(crate) struct Registrations {
    pub(crate) groups: Vec<Group>,
    pub(crate) agents: RemoteAgents,
}

impl Settings {
    /// The registrations that this daemon removes; `None` without a group.
    ///
    /// # Errors
    /// `Usage` for an invalid group, an invalid rule for agents, or unusable certificates.
    pub(crate) fn registrations(
        &self,
        environment: Environment<'_>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Registrations>, Usage> {
        let names = self.registrations_groups.split(',').map(str::trim);
        let groups = names
            .filter(|name| !name.is_empty())
            .map(|name| Group::new(name).map_err(|error| Usage::new(format!("registrations.groups: {error}"))))
            .collect::<Result<Vec<_>, _>>()?;
        if groups.is_empty() {
            return Ok(None);
        }
        let allowed: Allowed = self
            .registrations_agents
            .parse()
            .map_err(|error| Usage::new(format!("registrations.agents: {error}")))?;
        let file = |path: &str| Some(PathBuf::from(path)).filter(|_| !path.is_empty());
        let secret = environment(SECRET).filter(|secret| !secret.is_empty());
        let token = match (file(&self.registrations_token_file), secret) {
            (Some(_), Some(_)) => {
                let message = format!("the token has one source: registrations.token_file or {SECRET}");
                return Err(Usage::new(message));
            }
            (Some(path), None) => Token::file(path),
            (None, Some(secret)) => Token::fixed(secret),
            (None, None) => Token::none(),
        };
        let tls = ClientTls {
            ca: file(&self.registrations_tls_ca),
            cert: file(&self.registrations_tls_cert),
            key: file(&self.registrations_tls_key),
        };
        if tls != ClientTls::default() {
            tls.config()
                .map_err(|error| Usage::new(format!("registrations.tls: {error}")))?;
        }
        let agents = RemoteAgents::new(allowed, token, REQUEST, Arc::clone(clock)).with_tls(tls);
        Ok(Some(Registrations { groups, agents }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::FlagsOf;
    use tenure_core::clock::SystemClock;

    fn groups(flags: &[(&'static str, &str)], secret: Option<&str>) -> Result<Vec<String>, String> {
        let environment = |name: &str| secret.filter(|_| name == SECRET).map(str::to_owned);
        let settings = Settings::load(&FlagsOf::of(None, flags), &environment).unwrap();
        let found = settings.registrations(&environment, &SystemClock::shared());
        let found = found.map_err(|error| error.to_string())?;
        let groups = found.map(|found| found.groups).unwrap_or_default();
        Ok(groups.iter().map(|group| group.as_str().to_owned()).collect())
    }

    #[test]
    fn nothing_is_cleared_away_unless_a_group_is_named() {
        assert_eq!(groups(&[], None), Ok(Vec::new()));
        let two = ("registrations.groups", "music, web");
        assert_eq!(
            groups(&[two], Some("s")),
            Ok(vec!["music".to_owned(), "web".to_owned()])
        );
        for (flags, part) in [
            (&[("registrations.groups", "a b")][..], "registrations.groups"),
            (&[two, ("registrations.agents", "a b")], "registrations.agents"),
            (&[two, ("registrations.tls_ca", "/nowhere")], "/nowhere"),
        ] {
            assert!(groups(flags, None).unwrap_err().contains(part), "{flags:?}");
        }
        let file = ("registrations.token_file", "/run/token");
        assert!(groups(&[two, file], None).is_ok());
        assert!(groups(&[two, file], Some("s")).unwrap_err().contains(SECRET));
    }
}
