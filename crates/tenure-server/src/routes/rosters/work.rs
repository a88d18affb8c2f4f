//! Asking the service: where it is, how long it may take, and what is finished although nobody waits any more.

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

/// How long anything about a roster may take. The service has shorter limits of its own for the hot store and for the
/// ledger, and a call may need both; whoever asked is promised an answer within two seconds.
const PATIENCE: Duration = Duration::from_millis(1_900);
/// What has not answered when that has passed.
const BOTH: &str = "the mirror and the ledger";

impl App {
    /// The service.
    ///
    /// # Errors
    /// `Unsupported` without a ledger, with what to configure.
    pub(crate) fn rosters(&self) -> Result<&Rosters> {
        self.rosters.as_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "this daemon has no ledger, and rosters need one: start it with --ledger postgres://… (or TENURE_LEDGER)",
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

    /// Asks for something that changes nothing (or for a heartbeat).
    pub(crate) async fn look_in<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        Timeout::read(PATIENCE).call(&*self.clock, BOTH, work).await
    }

    /// Asks a roster that must exist for something that changes nothing.
    ///
    /// # Errors
    /// 404 with the nearest name that the caller may see, and those of the work.
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

    /// Asks for a change. It goes to its end in a task of its own: a client that hangs up leaves nothing half done, least
    /// of all a deactivation that the ledger has and the hot store has not.
    ///
    /// The not-after is the hot store's time and cannot be checked by the ledger; what has not begun by then does not begin.
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
        let panicked = |error| Error::new(ErrorKind::Internal, "the work for a roster panicked").because(error);
        let work = async { tokio::spawn(work).await.map_err(panicked)? };
        Timeout::change(PATIENCE).call(&*self.clock, BOTH, work).await
    }
}
