//! What a server's refusal means: a pure table from its error text to what can be done about it.
//!
//! The rule for what is not in the table is the careful one: the store is unavailable and the outcome unknown, so the
//! caller reads back within its own deadline and nobody is declared dead over a new error code.

use std::error::Error as StdError;

use tenure_core::error::{Error, ErrorKind, Outcome};

use crate::address::Endpoint;

/// What to do about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server lost our script: send the text.
    SendText,
    /// This server cannot serve us; another one behind the same name may. Nothing was written.
    Leave,
    /// It cannot serve just now. Nothing was written.
    Later,
    /// It refuses us. Nothing was written.
    Denied,
    /// It is not what we were told it is. Nothing was written.
    Misconfigured,
    /// A bug of ours, or data that we did not write.
    Internal,
    /// Nobody knows, and nobody knows what was written.
    Unclear,
}

/// A node of a cluster names another one for a slot. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Redirection {
    /// The slot is there. Without a host it is on the host that says so.
    #[error("MOVED to {0}")]
    Moved(Endpoint),
    /// The slot is on its way there.
    #[error("ASK: the slot is being moved")]
    Ask,
}

impl Redirection {
    /// Reads `MOVED SLOT HOST:PORT` or `ASK SLOT HOST:PORT`.
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

/// Reads a server's error: its code (the first word) and the rest of the line.
pub(crate) fn classify(code: &str, detail: &str) -> Verdict {
    match code {
        "NOSCRIPT" => Verdict::SendText,
        "READONLY" | "LOADING" | "MASTERDOWN" => Verdict::Leave,
        "BUSY" | "OOM" | "CLUSTERDOWN" | "NOREPLICAS" | "TRYAGAIN" | "MISCONF" | "NOGOODSLAVE" | "INPROG" => {
            Verdict::Later
        }
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => Verdict::Denied,
        "MOVED" | "ASK" | "CROSSSLOT" | "NOPROTO" => Verdict::Misconfigured,
        "WRONGTYPE" => Verdict::Internal,
        "ERR" => classify_plain(detail),
        _ => Verdict::Unclear,
    }
}

/// `ERR` is what a server says when it has no code; only the text tells.
fn classify_plain(detail: &str) -> Verdict {
    let detail = detail.to_ascii_lowercase();
    let says = |part: &str| detail.contains(part);
    // A key that a script of ours derives is on its way to another node, or the cluster has just gone down. Scripts look at
    // every key before they write, so that nothing was written.
    let moving = says("access a non local key") || says("the cluster is down");
    if moving || says("max number of clients") || says("lua redis() command arguments") && says("memory") {
        Verdict::Later
    } else if says("invalid password")
        || says("without any password configured")
        || says("acl failure in script")
        || says("user executing the script can't")
    {
        Verdict::Denied
    } else if says("db index is out of range")
        || says("unknown command")
        || says("unknown redis command")
        || says("unknown server command")
        || says("not allowed in cluster mode")
    {
        Verdict::Misconfigured
    } else if says("user_script") || says("error compiling script") || says("error running script") {
        Verdict::Internal
    } else {
        Verdict::Unclear
    }
}

/// The rule that a user lacks, from the server's own words about it.
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

impl Verdict {
    /// The outer error for it. The server's own words are kept as the cause.
    pub(crate) fn into_error(self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let unchanged = |message: &'static str| Error::unavailable(message, Outcome::Unchanged);
        match self {
            Self::Leave => unchanged("the store's server is not (or not yet) a primary; connecting anew"),
            Self::Later => unchanged("the store refuses to write just now; try again"),
            Self::SendText => unchanged("the store does not keep our scripts; try again"),
            Self::Denied => Error::new(
                ErrorKind::Denied,
                "the store denies what Tenure needs; look at the user's password, commands and keys (`tenure doctor`)",
            ),
            Self::Misconfigured => Error::new(
                ErrorKind::Misconfigured,
                "the store is not what its URL says (a cluster needs valkey-cluster://); look at the URL",
            ),
            Self::Internal => Error::new(
                ErrorKind::Internal,
                "the store holds data under Tenure's keys that Tenure did not write",
            ),
            Self::Unclear => Error::unavailable("the store answered with an error that nobody knows", Outcome::Unknown),
        }
        .because(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_refusal_has_its_verdict() {
        use Verdict::{Denied, Internal, Later, Leave, Misconfigured, SendText, Unclear};
        for (line, verdict) in [
            ("NOSCRIPT No matching script. Please use EVAL.", SendText),
            ("READONLY You can't write against a read only replica.", Leave),
            (
                "READONLY You can't write against a read only replica. script: 5c1c, on @user_script:3.",
                Leave,
            ),
            ("LOADING Valkey is loading the dataset in memory", Leave),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                Leave,
            ),
            (
                "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                Later,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 5c1c, on @user_script:9.",
                Later,
            ),
            ("CLUSTERDOWN The cluster is down", Later),
            ("CLUSTERDOWN Hash slot not served", Later),
            ("NOREPLICAS Not enough good replicas to write.", Later),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Later),
            ("MISCONF Errors writing to the AOF file: No space left on device", Later),
            ("ERR max number of clients reached", Later),
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
            ("ERR DB index is out of range", Misconfigured),
            (
                "ERR unknown command 'EVALSHA', with args beginning with: ",
                Misconfigured,
            ),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 5c1c, on @user_script:9.",
                Later,
            ),
            (
                "ERR Script attempted to execute a write command while the cluster is down and readonly script: 5c1c, on @user_script:9.",
                Later,
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
            ("ERR Protocol error: invalid bulk length", Unclear),
            ("ERR value is not an integer or out of range", Unclear),
            ("UNKILLABLE Sorry the script already executed write commands", Unclear),
            ("EXECABORT Transaction discarded because of previous errors.", Unclear),
            ("FUTURECODE something new", Unclear),
            ("lorem ipsum", Unclear),
            ("", Unclear),
        ] {
            let (code, detail) = line.split_once(' ').unwrap_or((line, ""));
            assert_eq!(classify(code, detail), verdict, "{line}");
        }
    }

    #[test]
    fn the_rule_that_is_missing_is_named() {
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
    fn a_redirection_names_a_node() {
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
    fn only_the_unclear_may_have_changed_something() {
        for verdict in [
            Verdict::Leave,
            Verdict::Later,
            Verdict::Denied,
            Verdict::Misconfigured,
            Verdict::Internal,
        ] {
            assert_eq!(verdict.into_error("why").outcome(), Outcome::Unchanged, "{verdict:?}");
        }
        let unclear = Verdict::Unclear.into_error("why");
        assert_eq!(
            (unclear.kind(), unclear.outcome()),
            (ErrorKind::Unavailable, Outcome::Unknown)
        );
        assert!(unclear.chain().ends_with(": why"));
    }
}
