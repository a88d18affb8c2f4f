//! Classifies a server's error reply: a pure table from the error text to the reaction.
//!
//! An error that is not in the table counts as unavailable with an unknown outcome. The caller then reads back within
//! its own deadline, and a new error code marks no member dead.

use std::error::Error as StdError;

use tenure_core::error::{Error, ErrorKind, Outcome};

use crate::address::Endpoint;

/// How the client reacts to a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalClass {
    /// The server lost the script: send its text.
    SendText,
    /// This server cannot serve; another one behind the same name may. Nothing was written.
    Reconnect,
    /// The server cannot serve at the moment. Nothing was written.
    RetryLater,
    /// The server has no connection left. Nothing was written.
    NoConnection,
    /// The server denies the user. Nothing was written.
    Denied,
    /// The server does not have a command that is needed. Nothing was written.
    NoCommand,
    /// The server does not have the database of the URL. Nothing was written.
    NoDatabase,
    /// The server is not of the kind that the URL says. Nothing was written.
    Misconfigured,
    /// A bug in Tenure, or data that it did not write.
    Internal,
    /// Not classified: the outcome is unknown.
    Unknown,
}

/// A cluster node redirects a call to another node. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Redirection {
    /// The slot belongs to that node. An empty host means the node that replied.
    #[error("MOVED to {0}")]
    Moved(Endpoint),
    /// The slot is being migrated to that node.
    #[error("ASK: the slot is being moved")]
    Ask,
}

impl Redirection {
    /// Parses `MOVED SLOT HOST:PORT` or `ASK SLOT HOST:PORT`.
    pub(crate) fn read(words: &str) -> Option<Self> {
        let mut words = words.split_ascii_whitespace();
        let (code, _, to) = (words.next()?, words.next()?, words.next()?);
        match code {
            "ASK" => Some(Self::Ask),
            "MOVED" => {
                let (host, port) = to.rsplit_once(':')?;
                let (host, port) = (host.to_owned(), port.parse().ok()?);
                Some(Self::Moved(Endpoint { host, port }))
            }
            _ => None,
        }
    }
}

/// Classifies a server's error by its code (the first word) and the rest of the line.
pub(crate) fn classify(code: &str, detail: &str) -> RefusalClass {
    match code {
        "NOSCRIPT" => RefusalClass::SendText,
        "READONLY" | "LOADING" | "MASTERDOWN" => RefusalClass::Reconnect,
        "BUSY" | "OOM" | "CLUSTERDOWN" | "NOREPLICAS" | "TRYAGAIN" | "MISCONF" | "NOGOODSLAVE" | "INPROG" => {
            RefusalClass::RetryLater
        }
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => RefusalClass::Denied,
        "MOVED" | "ASK" | "CROSSSLOT" | "NOPROTO" => RefusalClass::Misconfigured,
        "WRONGTYPE" => RefusalClass::Internal,
        "ERR" => classify_plain(detail),
        _ => RefusalClass::Unknown,
    }
}

/// Classifies an `ERR` reply by its text, because it carries no code.
fn classify_plain(detail: &str) -> RefusalClass {
    let detail = detail.to_ascii_lowercase();
    let says = |part: &str| detail.contains(part);
    // A key derived by a script is being migrated, or the cluster went down. Scripts read every key before the first
    // write, so nothing was written.
    let moving = says("access a non local key") || says("the cluster is down");
    if says("max number of clients") {
        RefusalClass::NoConnection
    } else if moving || says("lua redis() command arguments") && says("memory") {
        RefusalClass::RetryLater
    } else if says("invalid password")
        || says("without any password configured")
        || says("acl failure in script")
        || says("user executing the script can't")
    {
        RefusalClass::Denied
    } else if says("db index is out of range") {
        RefusalClass::NoDatabase
    } else if says("unknown command") || says("unknown redis command") || says("unknown server command") {
        RefusalClass::NoCommand
    } else if says("not allowed in cluster mode") {
        RefusalClass::Misconfigured
    } else if says("user_script") || says("error compiling script") || says("error running script") {
        RefusalClass::Internal
    } else {
        RefusalClass::Unknown
    }
}

/// The ACL rule that the user lacks, parsed from the server's message.
pub(crate) fn missing_rule(words: &str) -> Option<String> {
    let lower = words.to_ascii_lowercase();
    if lower.contains("permissions to access a key") {
        return Some("~{tenure:* ~tenure:*".to_owned());
    }
    let (_, command) = lower
        .split_once("to run the '")
        .or_else(|| lower.split_once("to run "))?;
    let command = command.split(['\'', ' ']).next()?;
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'|';
    (!command.is_empty() && command.bytes().all(known)).then(|| format!("+{command}"))
}

impl RefusalClass {
    /// Converts it to the public error. The server's message is kept as the cause.
    pub(crate) fn into_error(self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let unchanged = |message: &'static str| Error::unavailable(message, Outcome::Unchanged);
        let misconfigured = |message: &'static str| Error::new(ErrorKind::Misconfigured, message);
        match self {
            Self::Reconnect => unchanged("the store's server is not (or not yet) a primary; reconnecting"),
            Self::RetryLater => unchanged("the store refuses writes at the moment; try again"),
            Self::SendText => unchanged("the store does not keep the scripts; try again"),
            Self::Denied => Error::new(
                ErrorKind::Denied,
                "the store denies what Tenure needs; check the user's password, commands and keys (`tenure doctor`)",
            ),
            Self::NoConnection => {
                unchanged("the store's server has no connection left; raise its maxclients, or close other clients")
            }
            Self::NoCommand => misconfigured(
                "the store's server does not have a command that Tenure needs; if rename-command disables it there, enable it",
            ),
            Self::NoDatabase => misconfigured("the store's server does not have the database of the URL"),
            Self::Misconfigured => misconfigured(
                "the store is not what its URL says (a cluster needs valkey-cluster://); check the URL",
            ),
            Self::Internal => Error::new(
                ErrorKind::Internal,
                "the store holds data under Tenure's keys that Tenure did not write",
            ),
            Self::Unknown => Error::unavailable("the store replied with an unknown error", Outcome::Unknown),
        }
        .because(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_server_errors_are_classified() {
        use RefusalClass::{
            Denied, Internal, Misconfigured, NoCommand, NoConnection, NoDatabase, Reconnect, RetryLater, SendText,
            Unknown,
        };
        for (line, verdict) in [
            ("NOSCRIPT No matching script. Please use EVAL.", SendText),
            ("READONLY You can't write against a read only replica.", Reconnect),
            (
                "READONLY You can't write against a read only replica. script: 5c1c, on @user_script:3.",
                Reconnect,
            ),
            ("LOADING Valkey is loading the dataset in memory", Reconnect),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                Reconnect,
            ),
            (
                "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                RetryLater,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 5c1c, on @user_script:9.",
                RetryLater,
            ),
            ("CLUSTERDOWN The cluster is down", RetryLater),
            ("CLUSTERDOWN Hash slot not served", RetryLater),
            ("NOREPLICAS Not enough good replicas to write.", RetryLater),
            ("TRYAGAIN Multiple keys request during rehashing of slot", RetryLater),
            (
                "MISCONF Errors writing to the AOF file: No space left on device",
                RetryLater,
            ),
            ("ERR max number of clients reached", NoConnection),
            ("NOAUTH Authentication required.", Denied),
            ("WRONGPASS invalid username-password pair or user is disabled.", Denied),
            ("NOPERM User app has no permissions to run the 'hset' command", Denied),
            ("NOPERM No permissions to access a key", Denied),
            ("DENIED Redis is running in protected mode", Denied),
            (
                "ERR ACL failure in script: User app has no permissions to run the 'zadd' command script: 5c1c, on @user_script:1.",
                Denied,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 5c1c, on @user_script:1.",
                Denied,
            ),
            (
                "ERR AUTH <password> called without any password configured for the default user.",
                Denied,
            ),
            ("MOVED 3999 127.0.0.1:6381", Misconfigured),
            ("ASK 3999 127.0.0.1:6381", Misconfigured),
            ("CROSSSLOT Keys in request don't hash to the same slot", Misconfigured),
            ("ERR DB index is out of range", NoDatabase),
            ("ERR unknown command 'EVALSHA', with args beginning with: ", NoCommand),
            ("ERR SELECT is not allowed in cluster mode", Misconfigured),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 5c1c, on @user_script:9.",
                RetryLater,
            ),
            (
                "ERR Script attempted to execute a write command while the cluster is down and readonly script: 5c1c, on @user_script:9.",
                RetryLater,
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                Internal,
            ),
            (
                "ERR user_script:7: attempt to index a nil value script: 5c1c, on @user_script:7.",
                Internal,
            ),
            (
                "ERR Error compiling script (new function): user_script:1: '=' expected",
                Internal,
            ),
            ("ERR Protocol error: invalid bulk length", Unknown),
            ("ERR value is not an integer or out of range", Unknown),
            ("UNKILLABLE Sorry the script already executed write commands", Unknown),
            ("EXECABORT Transaction discarded because of previous errors.", Unknown),
            ("FUTURECODE something new", Unknown),
            ("lorem ipsum", Unknown),
            ("", Unknown),
        ] {
            let (code, detail) = line.split_once(' ').unwrap_or((line, ""));
            assert_eq!(classify(code, detail), verdict, "{line}");
        }
    }

    #[test]
    fn missing_acl_rule_is_named() {
        for (words, rule) in [
            (
                "NOPERM User app has no permissions to run the 'time' command",
                Some("+time"),
            ),
            (
                "NOPERM User app has no permissions to run the 'cluster|slots' command",
                Some("+cluster|slots"),
            ),
            (
                "ERR ACL failure in script: User app has no permissions to run the 'zadd' command script: 5c, on @user_script:1.",
                Some("+zadd"),
            ),
            (
                "NOPERM this user has no permissions to run ZADD on {tenure:a}:due",
                Some("+zadd"),
            ),
            ("NOPERM No permissions to access a key", Some("~{tenure:* ~tenure:*")),
            ("WRONGPASS invalid username-password pair or user is disabled.", None),
        ] {
            assert_eq!(missing_rule(words).as_deref(), rule, "{words}");
        }
    }

    #[test]
    fn redirection_names_a_node() {
        let to = |words| match Redirection::read(words) {
            Some(Redirection::Moved(to)) => Some((to.host, to.port)),
            _ => None,
        };
        assert_eq!(to("MOVED 3999 127.0.0.1:6381"), Some(("127.0.0.1".to_owned(), 6381)));
        assert_eq!(to("MOVED 3999 ::1:6381"), Some(("::1".to_owned(), 6381)));
        assert_eq!(to("MOVED 3999 :6381"), Some((String::new(), 6381)));
        assert!(matches!(
            Redirection::read("ASK 3999 127.0.0.1:6381"),
            Some(Redirection::Ask)
        ));
        for words in [
            "MOVED 3999",
            "MOVED 3999 nowhere",
            "MOVED 3999 a:b",
            "ERR MOVED a:1",
            "",
        ] {
            assert!(Redirection::read(words).is_none(), "{words}");
        }
    }

    #[test]
    fn only_unknown_refusals_have_unknown_outcome() {
        for verdict in [
            RefusalClass::Reconnect,
            RefusalClass::RetryLater,
            RefusalClass::NoConnection,
            RefusalClass::Denied,
            RefusalClass::NoCommand,
            RefusalClass::NoDatabase,
            RefusalClass::Misconfigured,
            RefusalClass::Internal,
        ] {
            assert_eq!(verdict.into_error("why").outcome(), Outcome::Unchanged, "{verdict:?}");
        }
        let unclear = RefusalClass::Unknown.into_error("why");
        assert_eq!(
            (unclear.kind(), unclear.outcome()),
            (ErrorKind::Unavailable, Outcome::Unknown)
        );
        assert!(unclear.chain().ends_with(": why"));
    }
}
