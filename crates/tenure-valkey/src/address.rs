//! The URL of a store. Secrets are kept apart from everything that is shown.

mod settings;

use std::fmt;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_tls::ClientTls;

use settings::{Scheme, UrlSettings};
pub(crate) use settings::{Wait, unusable};

/// The host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The servers behind a URL.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One server.
    One(Endpoint),
    /// The primary that the sentinels name.
    Sentinels(Sentinels),
    /// The nodes of a cluster, discovered from these seeds.
    Cluster(Vec<Endpoint>),
}

/// The sentinels that monitor a primary.
#[derive(Clone)]
pub(crate) struct Sentinels {
    /// Their addresses.
    pub(crate) at: Vec<Endpoint>,
    /// The name of the primary at the sentinels.
    pub(crate) name: String,
    /// Credentials for the sentinels.
    pub(crate) handshake: RedisConnectionInfo,
}

/// The parsed URL of a store: servers, credentials, TLS and `WAIT`.
#[derive(Clone)]
pub(crate) struct Address {
    servers: Servers,
    handshake: RedisConnectionInfo,
    tls: Option<ClientTls>,
    wait: Option<Wait>,
    place: String,
    /// Whether a single server must be a primary.
    primary: bool,
}

impl Address {
    /// Parses a URL:
    ///
    /// - `valkey://[user:password@]host[:port][/db]` (or `redis://…`), with TLS `valkeys://…` (or `rediss://…`)
    /// - `valkey-sentinel://[user:password@]host[:port][,host[:port]…]/name[/db]` (or `redis-sentinel://…`)
    /// - `valkey-cluster://[user:password@]host[:port][,host[:port]…]` (or `redis-cluster://…`)
    ///
    /// and after a `?` the settings of TLS, sentinels and `WAIT`.
    ///
    /// # Errors
    /// `Misconfigured` for any other text. An error repeats only the scheme of the URL, because the rest may be a
    /// password.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').ok_or_else(|| refused("it has no scheme"))?;
        let kind = Scheme::parse(scheme).ok_or_else(|| {
            let shown: String = scheme.chars().take(32).collect();
            refused(&format!("its scheme {shown:?} is not one of a Valkey or Redis"))
        })?;
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| refused("it has no // after its scheme"))?;
        if rest.contains('#') {
            return Err(refused("it has a # part, which is not supported"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let settings = UrlSettings::parse(kind, query)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority
            .rsplit_once('@')
            .map_or(("", authority), |(user, hosts)| (user, hosts));
        let (name, db) = match kind {
            Scheme::Sentinel => path.split_once('/').unwrap_or((path, "")),
            Scheme::One { .. } | Scheme::Cluster => ("", path),
        };
        let default_port = if kind == Scheme::Sentinel { 26_379 } else { 6379 };
        let mut read = Vec::new();
        for host in hosts.split(',') {
            read.push(read_one(user, host, db, default_port)?);
        }
        let Some((_, handshake)) = read.first().cloned() else {
            return Err(refused("it names no host and port"));
        };
        let at: Vec<Endpoint> = read.into_iter().map(|(endpoint, _)| endpoint).collect();
        let shown: Vec<String> = at.iter().map(Endpoint::to_string).collect();
        let mut place = format!("{scheme}://{}", shown.join(","));
        let servers = match kind {
            Scheme::One { .. } => match <[Endpoint; 1]>::try_from(at) {
                Ok([one]) => Servers::One(one),
                Err(_) => {
                    return Err(refused(
                        "it names more than one host without a sentinel or cluster scheme",
                    ));
                }
            },
            Scheme::Sentinel => {
                if name.is_empty() || name.len() > 200 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return Err(refused(
                        "it must end with the name of the primary, as in …:26379/mymaster",
                    ));
                }
                place = format!("{place}/{name}");
                let (name, handshake) = (name.to_owned(), settings.sentinel);
                Servers::Sentinels(Sentinels { at, name, handshake })
            }
            Scheme::Cluster if handshake.db() != 0 => {
                return Err(refused("a cluster has only database 0"));
            }
            Scheme::Cluster => Servers::Cluster(at),
        };
        if handshake.db() != 0 {
            place = format!("{place}/{}", handshake.db());
        }
        Ok(Self {
            servers,
            handshake,
            tls: settings.tls,
            wait: settings.wait,
            place,
            primary: true,
        })
    }

    /// The address of one node of a cluster.
    pub(crate) fn of_node(&self, node: &Endpoint) -> Self {
        let (scheme, _) = self.place.split_once("://").unwrap_or_default();
        Self {
            servers: Servers::One(node.clone()),
            place: format!("{scheme}://{node}"),
            // Replicas also know the primary.
            primary: false,
            ..self.clone()
        }
    }

    /// The same address, with replicas allowed for a single server.
    pub(crate) fn of_any_role(self) -> Self {
        Self { primary: false, ..self }
    }

    /// Whether a single server must be a primary.
    pub(crate) fn wants_primary(&self) -> bool {
        self.primary
    }

    /// The servers. Host names are resolved for each connection.
    pub(crate) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Credentials and database.
    pub(crate) fn handshake(&self) -> &RedisConnectionInfo {
        &self.handshake
    }

    /// The TLS files, if TLS is used.
    pub(crate) fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    /// How many replicas must confirm a grant, if any.
    pub(crate) fn wait(&self) -> Option<Wait> {
        self.wait
    }

    /// The URL without user, password and settings.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }
}

/// Parses one host as a single-server URL. The client library's parser handles escapes and IPv6 addresses.
fn read_one(user: &str, host: &str, db: &str, default_port: u16) -> Result<(Endpoint, RedisConnectionInfo)> {
    let at = if user.is_empty() { "" } else { "@" };
    let parsed = redis::parse_redis_url(&format!("redis://{user}{at}{host}/{db}"))
        .ok_or_else(|| refused("it cannot be read"))?;
    let port = parsed.port().unwrap_or(default_port);
    let info = parsed
        .into_connection_info()
        .map_err(|_| refused("its host, port or database cannot be read"))?;
    let ConnectionAddr::Tcp(host, _) = info.addr().clone() else {
        return Err(refused("it names no host and port"));
    };
    let handshake = info.redis_settings().clone().set_skip_set_lib_name();
    Ok((Endpoint { host, port }, handshake))
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.place)
    }
}

fn refused(why: &str) -> Error {
    Error::new(
        ErrorKind::Misconfigured,
        format!(
            "the store's URL is refused: {why}; write valkey:// or redis://[user:password@]host:port[/db], valkeys:// or \
             rediss://… for TLS, valkey-sentinel://host:port,…/name or valkey-cluster://host:port,…"
        ),
    )
}

#[cfg(test)]
mod tests;
