//! Calls of the roster service: time-outs, unknown rosters, and changes that complete after a disconnect.

use std::future::Future;
use std::time::Duration;

use tenure::roster::{Roster, Rosters};
use tenure::wire::Code;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::RosterName;
use tenure_core::store::Call;
use tenure_core::timeout::Timeout;

use crate::app::App;
use crate::auth::Caller;
use crate::nearest::nearest;
use crate::reply::Failure;
use crate::trace;

/// The time limit of a call. The service has shorter limits for the hot store and for the ledger, and a call may need both;
/// every answer is promised within two seconds.
const PATIENCE: Duration = Duration::from_millis(1_900);
/// What a time-out error names.
const BOTH: &str = "the mirror and the ledger";

impl App {
    /// The roster service.
    ///
    /// # Errors
    /// `Unsupported` without a ledger, naming the setting.
    pub(crate) fn rosters(&self) -> Result<&Rosters> {
        self.rosters.as_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "this daemon has no ledger, which rosters need: start it with --ledger postgres://… (or TENURE_LEDGER)",
            )
        })
    }

    /// One roster.
    ///
    /// # Errors
    /// Those of [`App::rosters`] and of the service.
    pub(crate) fn roster(&self, name: &RosterName) -> Result<Roster> {
        self.rosters()?.roster(name)
    }

    /// Runs a read, or a heartbeat.
    pub(crate) async fn look_in<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        Timeout::read(PATIENCE).call(&*self.clock, BOTH, work).await
    }

    /// Runs a read of a roster that must exist.
    ///
    /// # Errors
    /// 404 with the nearest name that the caller may see, and those of `work`.
    pub(crate) async fn look_in_roster<T>(
        &self,
        caller: &Caller,
        name: &RosterName,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T, Failure> {
        match self.look_in(work).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Failure::new(Code::NotFound, self.no_roster(caller, name)))
            }
            done => Ok(done?),
        }
    }

    /// The refusal of a roster that does not exist.
    pub(crate) fn no_roster(&self, caller: &Caller, name: &RosterName) -> String {
        let names = self.rosters().map(Rosters::names).unwrap_or_default();
        let seen = names.iter().filter(|known| caller.sees_roster(known));
        let hint = nearest(name.as_str(), seen.map(RosterName::as_str)).map_or_else(
            || "GET /v1/rosters lists those that exist.".to_owned(),
            |name| format!("did you mean {name:?}?"),
        );
        format!(
            "there is no roster {:?}; {hint} A roster begins with its first provider, PUT /v1/rosters/{name}/providers/{{p}}",
            name.as_str()
        )
    }

    /// Runs a change in a task of its own, so that it completes when the client disconnects: a deactivation must not reach the
    /// ledger alone.
    ///
    /// The ledger cannot check the not-after, which is the hot store's time; a change that has not begun by then does not begin.
    pub(crate) async fn write_in<T: Send + 'static>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if let (Some(not_after), Some(now)) = (call.not_after, self.store_time())
            && now > not_after
        {
            return Err(Error::too_late());
        }
        let panicked = |error| Error::new(ErrorKind::Internal, "the change of a roster panicked").because(error);
        let work = async { tokio::spawn(trace::here(work)).await.map_err(panicked)? };
        Timeout::change(PATIENCE).call(&*self.clock, BOTH, work).await
    }
}
