//! Which agents may be called on behalf of others.
//!
//! A holding names the agent that registered it, and a holding is written by whoever may write to the store. So the
//! address in it is a wish, and this list is the answer. Names are compared as they are written and never resolved.

use std::net::IpAddr;
use std::str::FromStr;

use super::address::Address;

/// A list of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Loopback,
    /// A range of addresses, on every port.
    Range(IpAddr, u8),
    /// A host or an address, on one port or on every.
    Host(String, Option<u16>),
}

/// What is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rule for agents; write loopback, HOST, HOST:PORT, or ADDRESS/BITS")]
pub struct BadRule(String);

impl Default for Allowed {
    /// The loopback addresses alone.
    fn default() -> Self {
        Self(vec![Rule::Loopback])
    }
}

impl FromStr for Allowed {
    type Err = BadRule;

    /// Reads rules with commas between them: `loopback`, `consul.internal:8500`, `10.0.0.0/8`.
    fn from_str(text: &str) -> Result<Self, BadRule> {
        text.split(',')
            .map(|rule| read(rule.trim()))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn read(text: &str) -> Result<Rule, BadRule> {
    let bad = || BadRule(text.to_owned());
    if text == "loopback" {
        return Ok(Rule::Loopback);
    }
    if let Some((net, bits)) = text.split_once('/') {
        let (net, bits): (IpAddr, u8) = (net.parse().map_err(|_| bad())?, bits.parse().map_err(|_| bad())?);
        let most = if net.is_ipv4() { 32 } else { 128 };
        return if bits <= most {
            Ok(Rule::Range(net, bits))
        } else {
            Err(bad())
        };
    }
    let (host, port) = match text.rsplit_once(':') {
        // An address of IPv6 without a port has colons of its own.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, Some(port.parse().map_err(|_| bad())?))
        }
        _ => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(good) {
        return Err(bad());
    }
    Ok(Rule::Host(host, port))
}

impl Allowed {
    /// Whether an agent may be called. Sockets of this machine may not: whose they are is not for a store to say.
    pub(super) fn allows(&self, address: &Address) -> bool {
        let Some(host) = address.base.host_str() else {
            return false;
        };
        if address.socket.is_some() {
            return false;
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let (ip, port) = (host.parse::<IpAddr>().ok(), address.base.port_or_known_default());
        self.0.iter().any(|rule| match rule {
            Rule::Loopback => host == "localhost" || ip.is_some_and(|ip| ip.to_canonical().is_loopback()),
            Rule::Range(net, bits) => ip.is_some_and(|ip| is_in(ip.to_canonical(), *net, *bits)),
            Rule::Host(wanted, only) => *wanted == host && only.is_none_or(|only| Some(only) == port),
        })
    }
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

    #[test]
    fn only_agents_on_the_list_are_called() {
        let allows = |rules: &str, address: &str| {
            let rules: Allowed = rules.parse().unwrap();
            rules.allows(&Address::read(address).unwrap())
        };
        for own in [
            "127.0.0.1:8500",
            "127.9.9.9:1",
            "[::1]:80",
            "localhost:8500",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(Allowed::default().allows(&Address::read(own).unwrap()), "{own}");
        }
        for foreign in [
            "10.0.0.1:8500",
            "localhost.evil:1",
            "127.0.0.1.evil:80",
            "0.0.0.0:1",
            "unix:///run/consul.sock",
        ] {
            assert!(
                !Allowed::default().allows(&Address::read(foreign).unwrap()),
                "{foreign}"
            );
        }
        // A URL reads these as 127.0.0.1, and so is it judged.
        assert!(allows("loopback", "2130706433:8500") && allows("loopback", "0x7f.1:8500"));
        assert!(allows("10.0.0.0/8", "10.255.0.1:1") && !allows("10.0.0.0/8", "11.0.0.1:1"));
        assert!(allows("0.0.0.0/0", "1.2.3.4:1") && !allows("0.0.0.0/0", "[::2]:1"));
        assert!(allows("fd00::/8", "[fd12::1]:1") && !allows("fd00::/8", "[fe80::1]:1"));
        assert!(allows("consul:8500", "CONSUL:8500") && !allows("consul:8500", "consul:8501"));
        assert!(allows("loopback, consul", "consul:9") && allows("loopback, consul", "127.0.0.1:9"));
        assert!(allows("[fd00::1]:80", "[fd00::1]:80") && !allows("[fd00::1]:80", "[fd00::1]:81"));
        for bad in ["", "a b", "10.0.0.0/33", "host:port", "10/8"] {
            assert!(bad.parse::<Allowed>().is_err(), "{bad}");
        }
    }
}
