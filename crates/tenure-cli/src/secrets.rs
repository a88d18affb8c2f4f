//! The secrets that `join` and `run` remove from the environment of their commands.
//!
//! A command inherits all other variables, also the names of files with secrets (`TENURE_TOKEN_FILE`,
//! `CONSUL_HTTP_TOKEN_FILE`): the file system decides whether it can read them.

use std::ffi::OsString;

use crate::connect::TOKEN;

/// The token for Consul, which is that of `run`. `join` has nothing to do with Consul, and passes it on.
pub(crate) const CONSUL: &str = "CONSUL_HTTP_TOKEN";
/// The store, whose URL may have a password.
const STORE: &str = "TENURE_STORE";
/// The others: the settings of a daemon are often in one file of variables with those of its commands.
const SECRETS: [&str; 5] = [
    TOKEN,
    "TENURE_LEDGER",
    "TENURE_JWT_SECRET",
    "TENURE_REGISTRATIONS_TOKEN",
    "TENURE_ADOPT_LEASES_TENURE_STORE",
];
/// The parameters of a store's URL that are not secret. Unlisted parameters are removed.
const KNOWN: [&str; 7] = [
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "sentinel_user",
    "wait",
    "wait_timeout",
];

/// The changes of a command's environment: removes secrets and `more`, and the password in the store's URL.
pub(crate) fn withheld(more: &[&str]) -> Vec<(OsString, Option<OsString>)> {
    let removed = SECRETS.iter().chain(more).map(|name| (name.into(), None));
    let store = std::env::var_os(STORE).map(|url| {
        let url = url.to_str().and_then(without_password);
        (STORE.into(), url.map(Into::into))
    });
    removed.chain(store).collect()
}

/// A store's URL without the passwords in it: where it is, and not how to be let in. `None` for one that may have a password
/// where none is looked for.
pub(crate) fn without_password(url: &str) -> Option<String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        // `sqlite:PATH` and `memory:` have none.
        return Some(url.to_owned());
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if path.contains('@') {
        return None;
    }
    let place = match authority.rsplit_once('@') {
        None => authority.to_owned(),
        Some((who, host)) => match who.split_once(':').map_or(who, |(user, _)| user) {
            "" => host.to_owned(),
            user => format!("{user}@{host}"),
        },
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let is_known = |pair: &&str| KNOWN.contains(&pair.split('=').next().unwrap_or_default());
    let kept: Vec<&str> = query.split('&').filter(is_known).collect();
    let query = if kept.is_empty() {
        String::new()
    } else {
        format!("?{}", kept.join("&"))
    };
    Some(format!("{scheme}://{place}{path}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_taken_out_of_urls() {
        for (url, kept) in [
            ("http://127.0.0.1:7717", "http://127.0.0.1:7717"),
            (
                "https://h/t?tls_ca=/etc/ca.pem&tls_key=k",
                "https://h/t?tls_ca=/etc/ca.pem&tls_key=k",
            ),
            ("sqlite:/var/lib/t@1.db", "sqlite:/var/lib/t@1.db"),
            ("valkey://h:6379/1", "valkey://h:6379/1"),
            ("valkey://user:hunter2@h:6379/1", "valkey://user@h:6379/1"),
            ("redis://:hunter2@h", "redis://h"),
            ("redis://:hun@ter2@h", "redis://h"),
            ("rediss://user@h", "rediss://user@h"),
            (
                "valkey-sentinel://u:hunter2@a:1,b:2/main?sentinel_user=s&sentinel_password=hunter2&tls=on",
                "valkey-sentinel://u@a:1,b:2/main?sentinel_user=s&tls=on",
            ),
            ("valkey://h?sentinel%5Fpassword=hunter2", "valkey://h"),
        ] {
            assert_eq!(without_password(url).as_deref(), Some(kept), "{url}");
        }
        for odd in ["redis://:hun/ter2@h", "redis://u:hun?ter2@h", "redis://u:hun#ter2@h"] {
            assert_eq!(without_password(odd), None, "{odd}");
        }
    }
}
