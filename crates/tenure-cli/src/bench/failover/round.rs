//! The contenders, and one round: a fault of the holder, and what came of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;
use tenure_core::clock::{Clock, jitter};
use tenure_core::id::LeaseName;
use tenure_core::time::show_duration;
use tenure_core::timing::Timing;
use tokio::io::AsyncBufReadExt;

use super::contender::{Said, now};
use super::{Failover, Fault};
use crate::connect::Connected;
use crate::exit::say;
use crate::process::Process;

/// The pause between two look-ups.
const LOOK: Duration = Duration::from_millis(5);
/// The time, beyond the ttl, in which the next contender must have the lease and a resumed one must have stopped.
const PATIENCE: Duration = Duration::from_secs(30);

/// A grant, as its contender told of it. Times are those of [`now`].
#[derive(Debug, Clone, Copy)]
struct Grant {
    contender: usize,
    at: Duration,
    worked: Option<Duration>,
    has_stopped: bool,
}

impl Grant {
    /// Whether it was worked under after the next one had been made.
    fn overlaps(&self, next: &Self) -> bool {
        self.worked.is_some_and(|worked| worked >= next.at)
    }
}

/// What the contenders said so far: their grants, by token.
#[derive(Debug, Default)]
struct Told {
    grants: BTreeMap<u64, Grant>,
    /// The newest grant of each contender.
    newest: BTreeMap<usize, u64>,
    /// How long the group grants no lease yet.
    unsettled: Option<Duration>,
}

impl Told {
    fn hear(&mut self, contender: usize, said: Said) {
        if let Said::Granted { at, token } = said {
            let grant = Grant {
                contender,
                at,
                worked: None,
                has_stopped: false,
            };
            self.grants.insert(token, grant);
            self.newest.insert(contender, token);
        }
        if let Said::Unsettled(wait) = said {
            self.unsettled = Some(wait);
        }
        let newest = self.newest.get(&contender);
        let Some(grant) = newest.and_then(|token| self.grants.get_mut(token)) else {
            return;
        };
        match said {
            Said::Worked(at) => grant.worked = Some(at),
            Said::Stopped(_) => grant.has_stopped = true,
            _ => {}
        }
    }
}

/// What one fault led to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    /// From the holder's deadline to the first look-up that showed it dead. None for a stop, which has no deadline to wait for.
    pub(super) detected: Option<Duration>,
    /// From the fault until the next contender knew that it has the lease.
    pub(super) takeover: Duration,
    /// The same, from the deadline.
    pub(super) after_deadline: Option<Duration>,
    /// For how long look-ups showed no living holder.
    pub(super) without_holder: Duration,
    /// Look-ups that failed.
    pub(super) failed: u32,
    /// Whether the old holder worked after the next one had been granted the lease.
    pub(super) overlaps: bool,
}

/// The running contenders.
pub(super) struct Rounds<'a> {
    settings: &'a Failover,
    connected: &'a Connected,
    clock: Arc<dyn Clock>,
    lease: LeaseName,
    logs: TempDir,
    prefix: String,
    contenders: Vec<Process>,
    told: Arc<Mutex<Told>>,
}

impl<'a> Rounds<'a> {
    /// Starts them.
    ///
    /// # Errors
    /// If one of them cannot join.
    pub(super) async fn start(settings: &'a Failover, connected: &'a Connected) -> anyhow::Result<Self> {
        let clock = Arc::clone(connected.tenure.clock());
        let mut rounds = Self {
            settings,
            connected,
            lease: LeaseName::new("leader")?,
            logs: tempfile::tempdir().context("no temporary directory for the logs of the contenders")?,
            prefix: format!("contender-{:08x}", clock.entropy() >> 32),
            clock,
            contenders: Vec::new(),
            told: Arc::default(),
        };
        for number in 0..settings.contenders as usize {
            let contender = rounds.launch(number).await?;
            rounds.contenders.push(contender);
        }
        Ok(rounds)
    }

    /// Ends them; they leave.
    pub(super) async fn stop(&mut self) {
        for contender in self.contenders.drain(..) {
            contender.stop(&*self.clock).await;
        }
    }

    async fn launch(&self, number: usize) -> anyhow::Result<Process> {
        let settings = self.settings;
        let mut args: Vec<std::ffi::OsString> = ["bench", "contender", "--lease", self.lease.as_str()]
            .map(Into::into)
            .into();
        args.extend(["--group", settings.group.as_str()].map(Into::into));
        args.extend(["--member".into(), format!("{}-{number}", self.prefix).into()]);
        args.extend(["--ttl".into(), show_duration(settings.ttl).into()]);
        args.extend(["--max-ttl".into(), show_duration(settings.max_ttl).into()]);
        if let Some(file) = crate::connect::token_file() {
            args.extend(["--token-file".into(), file.into()]);
        }
        let log = self.logs.path().join(format!("{number}.log"));
        let mut process = Process::start(&*self.clock, args, &log, Some(&self.connected.url)).await?;
        let out = process.take_output().context("a contender has no output")?;
        let told = Arc::clone(&self.told);
        tokio::spawn(async move {
            let mut lines = out.lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(said) = Said::read(&line) {
                    lock(&told).hear(number, said);
                }
            }
        });
        Ok(process)
    }

    /// Strikes the holder, waits until another contender works, and makes everything whole again.
    ///
    /// # Errors
    /// If no contender gets the lease in time, or one does not start.
    pub(super) async fn round(&mut self, fault: Fault) -> anyhow::Result<Sample> {
        let (token, holder) = self.steady().await?;
        // Somewhere between two heartbeats.
        let interval = Timing::for_ttl(self.settings.ttl).interval;
        self.clock.sleep(jitter(&*self.clock, interval / 2, 100)).await;
        let struck = now();
        self.contenders[holder.contender].signal(fault.signal());
        let (mut sample, next) = self.until_taken_over(token, struck, fault).await?;
        self.heal(fault, token, holder.contender).await?;
        let old = self.grant(token).context("the grant of the old holder")?;
        sample.overlaps = old.overlaps(&next);
        Ok(sample)
    }

    fn grant(&self, token: u64) -> Option<Grant> {
        lock(&self.told).grants.get(&token).copied()
    }

    /// Waits until the newest grant is worked under and the store says the same. Returns it and its token.
    async fn steady(&self) -> anyhow::Result<(u64, Grant)> {
        let (mut begun, mut has_said) = (now(), false);
        loop {
            let (newest, unsettled) = {
                let mut told = lock(&self.told);
                let newest = told.grants.last_key_value().map(|(token, grant)| (*token, *grant));
                (newest, told.unsettled.take())
            };
            if let Some(wait) = unsettled {
                begun = now();
                if !std::mem::replace(&mut has_said, true) {
                    let (group, wait) = (&self.settings.group, show_duration(wait));
                    say(format_args!(
                        "group \"{group}\" grants no lease for {wait}; if nothing was held in it, run `tenure settle --group {group}`"
                    ));
                }
            }
            if let Some((token, grant)) = newest.filter(|(_, grant)| grant.worked.is_some() && !grant.has_stopped) {
                let seen = self
                    .connected
                    .tenure
                    .store()
                    .lease_of(&self.settings.group, &self.lease)
                    .await;
                if seen.is_ok_and(|seen| seen.is_some_and(|seen| seen.alive && seen.token.get() == token)) {
                    return Ok((token, grant));
                }
            }
            ensure!(
                now() < begun + self.settings.ttl + PATIENCE,
                "no contender holds the lease"
            );
            self.clock.sleep(LOOK).await;
        }
    }

    /// Looks the lease up until it shows the next holder. Returns also that holder's grant.
    async fn until_taken_over(&self, token: u64, struck: Duration, fault: Fault) -> anyhow::Result<(Sample, Grant)> {
        let (mut sample, mut deadline, mut gone) = (Sample::default(), None, None);
        let store = self.connected.tenure.store();
        loop {
            let asked = now();
            match store.lease_of(&self.settings.group, &self.lease).await {
                Ok(Some(seen)) if seen.alive && seen.token.get() == token => deadline = Some(asked + seen.expires_in),
                Ok(seen) => {
                    let gone = *gone.get_or_insert_with(now);
                    let next = lock(&self.told).grants.range(token + 1..).next().map(|(_, next)| *next);
                    if let Some(next) = next.filter(|_| seen.is_some_and(|seen| seen.alive)) {
                        sample.takeover = next.at.saturating_sub(struck);
                        if let Some(deadline) = deadline.filter(|_| fault != Fault::Stop) {
                            sample.detected = Some(gone.saturating_sub(deadline));
                            sample.after_deadline = Some(next.at.saturating_sub(deadline));
                        }
                        sample.without_holder = now().saturating_sub(gone);
                        return Ok((sample, next));
                    }
                }
                Err(_) => sample.failed += 1,
            }
            if asked > struck + self.settings.ttl + PATIENCE {
                bail!(
                    "no other contender has the lease {} after the fault",
                    show_duration(asked - struck)
                );
            }
            self.clock.sleep(LOOK).await;
        }
    }

    /// Resumes the old holder, or starts it again, and waits until it no longer trusts its grant.
    async fn heal(&mut self, fault: Fault, token: u64, contender: usize) -> anyhow::Result<()> {
        if fault != Fault::Freeze {
            // Its output was read to the end when the next process says that it is ready.
            self.contenders[contender] = self.launch(contender).await?;
            return Ok(());
        }
        self.contenders[contender].signal(Signal::CONT);
        let resumed = now();
        while self.grant(token).is_some_and(|grant| !grant.has_stopped) {
            ensure!(
                now() < resumed + PATIENCE,
                "a contender that was frozen has not stopped"
            );
            self.clock.sleep(LOOK).await;
        }
        Ok(())
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn work_after_the_next_grant_is_an_overlap() {
        let mut told = Told::default();
        for (contender, said) in [
            (0, Said::Granted { at: at(10), token: 5 }),
            (0, Said::Worked(at(20))),
            (1, Said::Granted { at: at(30), token: 6 }),
            (1, Said::Worked(at(40))),
        ] {
            told.hear(contender, said);
        }
        let overlaps = |told: &Told| told.grants[&5].overlaps(&told.grants[&6]);
        assert!(!overlaps(&told));
        told.hear(0, Said::Worked(at(35)));
        assert!(overlaps(&told));
        told.hear(0, Said::Stopped(at(36)));
        assert!(told.grants[&5].has_stopped && !told.grants[&6].has_stopped);
    }
}
