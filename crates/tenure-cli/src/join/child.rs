//! The command that `join` wraps: starting it, passing signals on, stopping its process group.

use std::ffi::OsString;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::clock::Clock;
use tenure_supervise::child::{Child, Helpers, Program};
use tenure_supervise::process::Processes;
use tenure_supervise::signals::Signals;

use crate::secrets;

/// Starts the command with these variables, and without the secrets that are ours.
///
/// # Errors
/// Those of the system; nothing runs then.
pub(crate) async fn start(
    command: &[OsString],
    variables: Vec<(OsString, OsString)>,
    clock: &Arc<dyn Clock>,
) -> io::Result<Child> {
    let program = Program {
        command: command.to_vec(),
        helpers: Helpers {
            environment: secrets::withheld(&[]),
            ..Helpers::of_this_program("launch", "keep")
        },
    };
    Child::start(&Processes::own(clock)?, &program, variables).await
}

/// Ends the remaining processes of its group: TERM, then KILL after `grace`. Signals that arrive in between are passed on; a second request to end (TERM, INT or QUIT) cuts the grace short.
pub(crate) async fn stop(child: &mut Child, clock: &dyn Clock, grace: Duration, signals: &mut Signals) {
    if child.is_gone() {
        return child.gone(clock).await;
    }
    child.term();
    let (until, mut asked) = (clock.mono() + grace, false);
    loop {
        tokio::select! {
            biased;
            () = child.gone(clock) => return,
            () = clock.sleep(until.since(clock.mono())) => break,
            signal = signals.next() => {
                child.pass(signal);
                let ends = matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT);
                if ends && asked {
                    break;
                }
                asked |= ends;
            }
        }
    }
    child.kill();
    child.gone(clock).await;
}

/// The exit code for a signal that has arrived already and asks to end.
pub(crate) async fn asked_to_end(signals: &mut Signals) -> Option<u8> {
    tokio::select! {
        biased;
        code = end_asked(signals) => Some(code),
        () = ready(()) => None,
    }
}

/// Waits for a signal that asks to end. Returns its exit code.
pub(crate) async fn end_asked(signals: &mut Signals) -> u8 {
    loop {
        let signal = signals.next().await;
        if !matches!(signal, Signal::USR1 | Signal::USR2 | Signal::WINCH) {
            return 128 + u8::try_from(signal.as_raw()).unwrap_or_default();
        }
    }
}
