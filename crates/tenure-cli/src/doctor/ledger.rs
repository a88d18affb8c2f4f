//! A ledger that no daemon looks at.

use std::sync::Arc;

use tenure::ledger;
use tenure_core::clock::{Clock, within};
use tenure_core::error::ErrorKind;
use tenure_core::store::{Severity, Store};

use super::finding::Diagnosis;
use super::{PATIENCE, silent};

/// Opens it, which brings its schema up to date as a daemon would, and looks.
pub(super) async fn look(url: &str, store: &dyn Store, clock: &Arc<dyn Clock>) -> Vec<Diagnosis> {
    let opened = match within(&**clock, PATIENCE, ledger::open(url, Arc::clone(clock))).await {
        Some(opened) => opened,
        None => return vec![silent("ledger")],
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let told = Diagnosis::new("ledger", Severity::Error, error.chain());
            return vec![match error.kind() {
                ErrorKind::Denied => told.advise("its user needs the rights to the schema tenure, or to make it"),
                ErrorKind::Misconfigured => told,
                _ => told.advise("is it running, and is the URL right?"),
            }];
        }
    };
    let found = within(&**clock, PATIENCE, ledger::examine(&*opened, store)).await;
    opened.close().await;
    match found {
        Some(found) => found.into_iter().map(|finding| finding.of("ledger").into()).collect(),
        None => vec![silent("ledger")],
    }
}
