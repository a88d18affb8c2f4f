//! The connection to the store: reachability, TLS, permissions and clock offset.

use std::time::Duration;

use tenure_core::Store;
use tenure_core::clock::{Clock, within};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::store::Severity;
use tenure_core::time::{StoreTime, micros, show_duration};

use super::PATIENCE;
use super::finding::Diagnosis;

/// A clock offset that confuses readers of logs.
const NOTABLE_OFFSET: Duration = Duration::from_secs(2);

/// The finding for a failed connection.
pub(super) fn refused(error: &anyhow::Error) -> Diagnosis {
    let detail = format!("{error:#}");
    match error.downcast_ref::<Error>() {
        Some(error) => named(error, detail),
        None => named_by_text("store", detail),
    }
}

/// Compares the store's clock with ours. Returns the round-trip time if the store answered.
pub(super) async fn look(store: &dyn Store, clock: &dyn Clock) -> (Option<Duration>, Vec<Diagnosis>) {
    let place = store.place();
    let (sent_at, wall) = (clock.mono(), clock.wall_micros());
    let now = match within(clock, PATIENCE, store.now()).await {
        Some(Ok(now)) => now,
        Some(Err(error)) => {
            let detail = format!(
                "{place} does not serve: {}; is it running, and is the URL right?",
                error.chain()
            );
            return (None, vec![named(&error, detail)]);
        }
        None => {
            let detail = format!("{place} does not answer within {}", show_duration(PATIENCE));
            let told = Diagnosis::new("reach", Severity::Error, detail);
            return (
                None,
                vec![told.advise("look for a firewall between, or a server that hangs")],
            );
        }
    };
    let round_trip = clock.mono().since(sent_at);
    let reached = Diagnosis::new("reach", Severity::Ok, format!("{place} answers in {round_trip:.1?}"));
    let ours = StoreTime::from_micros(wall.saturating_add(micros(round_trip / 2)));
    (Some(round_trip), vec![reached, offset(ours, now)])
}

/// The finding for an error of the connection.
fn named(error: &Error, detail: String) -> Diagnosis {
    if error.kind() == ErrorKind::Denied {
        let told = Diagnosis::new("permission", Severity::Error, detail);
        return told.advise(
            "a daemon: show a token with the right scope (--token-file, TENURE_TOKEN_FILE); a server: its user needs more rights",
        );
    }
    named_by_text("reach", detail)
}

/// TLS errors of libraries are recognised by their text.
fn named_by_text(otherwise: &str, detail: String) -> Diagnosis {
    let words = detail.to_lowercase();
    let is_tls = ["certificate", "handshake", "tls"]
        .iter()
        .any(|word| words.contains(word));
    if is_tls {
        let told = Diagnosis::new("tls", Severity::Error, detail);
        return told.advise(
            "tls_ca=FILE in the URL sets the trusted authority, tls_cert=FILE and tls_key=FILE the client certificate",
        );
    }
    Diagnosis::new(otherwise, Severity::Error, detail)
}

fn offset(ours: StoreTime, theirs: StoreTime) -> Diagnosis {
    let (off, word) = if theirs >= ours {
        (theirs.since(ours), "ahead of")
    } else {
        (ours.since(theirs), "behind")
    };
    let detail = format!("the store's clock is {off:.1?} {word} this machine's");
    if off > NOTABLE_OFFSET {
        let detail = format!("{detail}; it decides nothing, but the times in logs will differ");
        return Diagnosis::new("offset", Severity::Warning, detail).advise("check NTP on both");
    }
    Diagnosis::new("offset", Severity::Ok, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_much_are_a_warning_and_no_error() {
        let at = |seconds: u64| StoreTime::from_micros(seconds * 1_000_000);
        assert_eq!(offset(at(100), at(101)).finding.severity, Severity::Ok);
        let off = offset(at(100), at(40)).finding;
        assert_eq!(off.severity, Severity::Warning);
        assert!(off.detail.contains("60.0s behind"), "{}", off.detail);
        assert!(offset(at(40), at(100)).finding.detail.contains("60.0s ahead of"));
    }

    #[test]
    fn connection_problems_are_named() {
        let check = |error: Error| named(&error, error.chain()).finding.check;
        let unreachable = |why: &str| Error::new(ErrorKind::Unavailable, why.to_owned());
        assert_eq!(check(unreachable("connection refused")), "reach");
        assert_eq!(check(unreachable("invalid peer certificate: UnknownIssuer")), "tls");
        assert_eq!(
            check(Error::new(ErrorKind::Denied, "the token may not read")),
            "permission"
        );
    }
}
