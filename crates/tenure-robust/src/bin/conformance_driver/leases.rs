//! Operations on leases.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tenure::wire::Code;
use tenure::{Acquire, AcquireOptions, Holders, LeaseGuard, MemberId, ReleaseOutcome, Verdict};

use crate::answer::{Answered, Command, Refusal};
use crate::member::{Member, word};
use crate::{Driver, locked, write};

/// A lease that was granted. Its guard is gone once it was released.
pub(crate) struct Held {
    token: u64,
    guard: Mutex<Option<LeaseGuard>>,
    /// A loss that the program asked for is no news.
    is_released: AtomicBool,
}

impl Driver {
    pub(crate) async fn acquire(&self, member: &Arc<Member>, command: &Command) -> Answered {
        let holders = command.number("holders").map_or(Ok(Holders::ONE), |holders| {
            Holders::new(u16::try_from(holders).unwrap_or(u16::MAX))
        })?;
        let options = AcquireOptions {
            holders,
            wait: command.duration("wait_ms").unwrap_or_default(),
        };
        let lease = command.text("lease")?;
        let clock = self.client.clock();
        let begin = clock.mono();
        let guard = match member.membership.leases().acquire_with(lease, options).await? {
            Acquire::Granted(guard) => guard,
            Acquire::Held { free_in, .. } | Acquire::Reserved { free_in, .. } => {
                return Err(Refusal::of(Code::LeaseHeld, Some(free_in)));
            }
            Acquire::Unsettled { retry_in, .. } => return Err(Refusal::of(Code::Unsettled, Some(retry_in))),
            Acquire::HoldersDiffer { .. } => return Err(Refusal::of(Code::HoldersDiffer, None)),
            Acquire::QueueFull { .. } => return Err(Refusal::of(Code::QueueFull, None)),
        };
        let (handle, token) = (self.name("l"), guard.token().get());
        let answer = json!({
            "lease_handle": handle,
            "token": token,
            "place": guard.place().get(),
            "generation": guard.generation(),
            "waited_ms": tenure::wire::ms(clock.mono().since(begin)),
        });
        let lost = guard.lost();
        let held = Arc::new(Held {
            token,
            guard: Mutex::new(Some(guard)),
            is_released: AtomicBool::new(false),
        });
        locked(&self.leases).insert(handle.clone(), Arc::clone(&held));
        let (member, lease) = (Arc::clone(member), lease.to_owned());
        tokio::spawn(async move {
            lost.cancelled().await;
            // What a program does with a guard that it cannot use any more. The work of a line never outlives a verdict.
            drop(locked(&held.guard).take());
            if !held.is_released.load(Ordering::SeqCst) && !member.has_left.load(Ordering::SeqCst) {
                write(&json!({ "event": "lease_lost", "lease_handle": handle, "lease": lease, "token": token }));
            }
        });
        Ok(answer)
    }

    pub(crate) async fn lease(&self, command: &Command) -> Answered {
        let (group, lease) = (
            tenure::Group::new(command.text("group")?)?,
            tenure::LeaseName::new(command.text("lease")?)?,
        );
        let lease = self.client.store().lease_of(&group, &lease).await?;
        Ok(lease.map_or(Value::Null, |lease| json!(lease)))
    }
}

impl Held {
    pub(crate) async fn act(self: &Arc<Self>, command: &Command) -> Answered {
        match command.text("op")? {
            "lease_verdict" => Ok(json!({ "verdict": word(self.verdict()), "token": self.token })),
            "release" => self.release(command.optional("to")).await,
            _ => {
                let period = command.duration("period_ms").unwrap_or(Duration::from_millis(10));
                let file = OpenOptions::new().append(true).create(true).open(command.text("file")?);
                let mut file = file.map_err(|error| Refusal::bad_command(&error.to_string()))?;
                let held = Arc::clone(self);
                thread::spawn(move || held.work(&mut file, period));
                Ok(json!({}))
            }
        }
    }

    fn verdict(&self) -> Verdict {
        locked(&self.guard).as_ref().map_or(Verdict::Lost, LeaseGuard::verdict)
    }

    async fn release(&self, to: Option<&str>) -> Answered {
        self.is_released.store(true, Ordering::SeqCst);
        let to = to.map(MemberId::new).transpose()?;
        let Some(guard) = locked(&self.guard).take() else {
            return Err(Refusal::of(Code::NotHolder, None));
        };
        let released = match to {
            Some(to) => guard.hand_off(&to).await?,
            None => guard.release().await?,
        };
        match released {
            ReleaseOutcome::NotHolder { .. } => Err(Refusal::of(Code::NotHolder, None)),
            _ => Ok(json!({})),
        }
    }

    /// Reads the clock before the verdict: a line proves that the lease was held at its time.
    #[expect(clippy::disallowed_methods, reason = "the work of the protocol is done in real time")]
    fn work(&self, file: &mut std::fs::File, period: Duration) {
        loop {
            let at = clock_gettime(ClockId::Monotonic);
            let nanos = i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec);
            match self.verdict() {
                Verdict::Lost => return,
                Verdict::Held if file.write_all(format!("{} {nanos}\n", self.token).as_bytes()).is_err() => return,
                Verdict::Held | Verdict::Uncertain => thread::sleep(period),
            }
        }
    }
}
