//! The allow list of agents that may be called on behalf of others.
//!
//! The address of an agent comes from a session name, which anyone with write access to the store can choose. So each
//! address is checked against this list. Names are compared as text and never resolved.
//!
//! A called agent gets the token. So a rule without a port allows only the ports of agents, and an address range does
//! not permit sending the token without TLS.

use std::net::IpAddr;
use std::str::FromStr;

use super::address::Address;

/// Consul's default ports for HTTP and HTTPS.
const PLAIN: u16 = 8500;
const SECURE: u16 = 8501;

/// An allow list of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    hosts: Hosts,
    /// The only allowed port. `None`: an agent's default ports.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Loopback,
    Range(IpAddr, u8),
    Named(String),
}

/// What the list permits for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Permission {
    /// The agent may not be called.
    Refused,
    /// The agent may be called, but without a token: anyone who controls one address of the range, or the network path
    /// to it, could read the token.
    WithoutToken,
    /// The agent may be called with a token.
    WithToken,
}

/// An invalid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a rule for agents; write loopback, HOST or ADDRESS/BITS, with :PORT when the agent is not at 8500 (or, with \
     TLS, 8501)"
)]
pub struct InvalidRule(String);

impl Default for Allowed {
    /// The loopback addresses.
    fn default() -> Self {
        let hosts = Hosts::Loopback;
        Self(vec![Rule { hosts, port: None }])
    }
}

impl FromStr for Allowed {
    type Err = InvalidRule;

    /// Parses comma-separated rules: `loopback`, `consul.internal:8600`, `10.0.0.0/8`.
    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        text.split(',')
            .map(|rule| read(rule.trim()).ok_or_else(|| InvalidRule(rule.trim().to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn read(text: &str) -> Option<Rule> {
    if let Some((net, bits)) = text.split_once('/') {
        let (bits, port) = with_port(bits)?;
        let (net, bits): (IpAddr, u8) = (net.parse().ok()?, bits.parse().ok()?);
        let most = if net.is_ipv4() { 32 } else { 128 };
        let hosts = Hosts::Range(net, bits);
        return (bits <= most).then_some(Rule { hosts, port });
    }
    let (host, port) = match text.rsplit_once(':') {
        // An IPv6 address without a port contains colons.
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (text, None),
        _ => with_port(text)?,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    let hosts = match host.as_str() {
        "" => return None,
        "loopback" => Hosts::Loopback,
        host if host.chars().all(good) => Hosts::Named(host.to_owned()),
        _ => return None,
    };
    Some(Rule { hosts, port })
}

/// Splits the port off.
fn with_port(text: &str) -> Option<(&str, Option<u16>)> {
    match text.rsplit_once(':') {
        Some((rest, port)) if !text.ends_with(']') => Some((rest, Some(port.parse().ok()?))),
        _ => Some((text, None)),
    }
}

impl Allowed {
    /// Whether an agent may be called, and with a token. Unix sockets are refused: a store must not choose a local
    /// socket.
    pub(super) fn permission(&self, address: &Address) -> Permission {
        let rules = self.0.iter().map(|rule| rule.permission(address));
        rules.max().unwrap_or(Permission::Refused)
    }
}

impl Rule {
    fn permission(&self, address: &Address) -> Permission {
        if !self.has_port(address) {
            return Permission::Refused;
        }
        let Some(host) = host_of(address) else {
            return Permission::Refused;
        };
        let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        match &self.hosts {
            Hosts::Loopback if is_loopback(address) => Permission::WithToken,
            Hosts::Named(name) if *name == host => Permission::WithToken,
            Hosts::Range(net, bits) if ip.is_some_and(|ip| is_in(ip, *net, *bits)) => {
                if address.is_secure() || is_loopback(address) {
                    Permission::WithToken
                } else {
                    Permission::WithoutToken
                }
            }
            Hosts::Loopback | Hosts::Named(_) | Hosts::Range(..) => Permission::Refused,
        }
    }

    /// Without a port, a rule allows only an agent's default ports: a store must not choose which program at the host
    /// gets the token.
    fn has_port(&self, address: &Address) -> bool {
        let port = address.base.port_or_known_default();
        match self.port {
            Some(only) => port == Some(only),
            None => port == Some(PLAIN) || (port == Some(SECURE) && address.is_secure()),
        }
    }
}

/// The host of an address in the form of rules. `None` for a socket.
fn host_of(address: &Address) -> Option<String> {
    let host = address.base.host_str().filter(|_| address.socket.is_none())?;
    Some(host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase())
}

/// Whether this address means a different agent on each machine.
pub(super) fn is_loopback(address: &Address) -> bool {
    host_of(address).is_some_and(|host| {
        let ip = host.parse::<IpAddr>().ok();
        host == "localhost" || ip.is_some_and(|ip| ip.to_canonical().is_loopback())
    })
}

fn is_in(ip: IpAddr, net: IpAddr, bits: u8) -> bool {
    let same = |ip: u128, net: u128, width: u8| {
        let shift = u32::from(width.saturating_sub(bits));
        shift >= u32::from(width) || ip >> shift == net >> shift
    };
    match (ip, net) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => same(ip.to_bits().into(), net.to_bits().into(), 32),
        (IpAddr::V6(ip), IpAddr::V6(net)) => same(ip.to_bits(), net.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(rules: &str, address: &str) -> Permission {
        let rules: Allowed = rules.parse().unwrap();
        rules.permission(&Address::read(address).unwrap())
    }

    #[track_caller]
    fn calls(rules: &str, address: &str) -> bool {
        permission(rules, address) > Permission::Refused
    }

    #[test]
    fn only_agents_on_the_list_are_called() {
        for own in [
            "127.0.0.1:8500",
            "127.9.9.9:8500",
            "https://[::1]:8501",
            "localhost:8500",
            "[::ffff:127.0.0.1]:8500",
        ] {
            assert!(calls("loopback", own), "{own}");
        }
        for foreign in [
            "10.0.0.1:8500",
            "localhost.evil:8500",
            "127.0.0.1.evil:8500",
            "0.0.0.0:8500",
            "unix:///run/consul.sock",
        ] {
            assert!(!calls("loopback", foreign), "{foreign}");
        }
        assert_eq!("loopback".parse(), Ok(Allowed::default()));
        // A URL parses these as 127.0.0.1.
        assert!(calls("loopback", "2130706433:8500") && calls("loopback", "0x7f.1:8500"));
        assert!(calls("10.0.0.0/8", "10.255.0.1:8500") && !calls("10.0.0.0/8", "11.0.0.1:8500"));
        assert!(calls("0.0.0.0/0", "1.2.3.4:8500") && !calls("0.0.0.0/0", "[::2]:8500"));
        assert!(calls("fd00::/8", "[fd12::1]:8500") && !calls("fd00::/8", "[fe80::1]:8500"));
        assert!(calls("consul", "CONSUL:8500") && calls("loopback, consul", "consul:8500"));
    }

    #[test]
    fn rule_without_a_port_allows_only_agent_ports() {
        for hosts in ["loopback", "127.0.0.1", "127.0.0.0/8"] {
            assert!(calls(hosts, "127.0.0.1:8500") && calls(hosts, "https://127.0.0.1:8501"));
            // Without TLS, 8501 is not an agent's port.
            assert!(!calls(hosts, "127.0.0.1:8501"));
            assert!(!calls(hosts, "127.0.0.1:8502") && !calls(hosts, "https://127.0.0.1:443"));
            let (own, another) = (format!("{hosts}:9"), "127.0.0.1:8500");
            assert!(calls(&own, "127.0.0.1:9") && !calls(&own, another), "{own}");
        }
        assert!(calls("[fd00::1]:80", "[fd00::1]:80") && !calls("[fd00::1]:80", "[fd00::1]:81"));
        assert!(calls("fd00::1", "[fd00::1]:8500") && calls("[fd00::1]", "[fd00::1]:8500"));
        assert!(calls("fd00::/8:80", "[fd00::1]:80"));
    }

    #[test]
    fn plaintext_token_goes_only_to_loopback_and_named_hosts() {
        let with_token = |rules: &str, address: &str| permission(rules, address) == Permission::WithToken;
        assert!(with_token("loopback", "127.0.0.1:8500") && with_token("127.0.0.0/8", "127.0.0.1:8500"));
        assert!(with_token("consul", "consul:8500") && with_token("10.0.0.7", "10.0.0.7:8500"));
        assert!(with_token("10.0.0.0/8", "https://10.0.0.7:8501"));
        assert!(with_token("10.0.0.0/8, 10.0.0.7", "10.0.0.7:8500"));
        assert_eq!(permission("10.0.0.0/8", "10.0.0.7:8500"), Permission::WithoutToken);
        assert_eq!(permission("10.0.0.7/32", "10.0.0.7:8500"), Permission::WithoutToken);
    }

    #[test]
    fn invalid_rules_are_rejected() {
        for bad in [
            "",
            "a b",
            "10.0.0.0/33",
            "host:port",
            "10/8",
            "10.0.0.0/8:x",
            ":80",
            "loopback:",
        ] {
            assert!(bad.parse::<Allowed>().is_err(), "{bad}");
        }
    }
}
