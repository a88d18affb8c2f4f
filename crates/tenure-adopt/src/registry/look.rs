//! Checks: which owners have entries, which of them have no heartbeat, and whether the store served continuously.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::Result;
use tenure_core::settling::MAX_GAP;

use super::brake::Dead;
use super::owner::{HeartbeatState, Owners};
use super::pass::{BACKOFF, Janitor};
use super::report::{Notice, PassReport};
use super::step::{Candidate, Page};
use super::watch::Watch;
use crate::health::{Break, ServerSnapshot};
use crate::{PAGE, text};

/// The longest time between two health checks.
const TICK: Duration = Duration::from_secs(1);
/// The most entries that a preview lists.
const LISTED: usize = 1_000;

/// How many entries without an owner are named.
const NAMED: usize = 3;

/// The result of one scan with a check of each owner.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) owners: Owners,
    pub(super) scanned: u64,
    pub(super) skipped: u64,
    /// The first keys without an owner.
    pub(super) skipped_first: Vec<Vec<u8>>,
    /// Why the result must not be used, if so.
    broken: Option<Break>,
    pub(super) doomed: Vec<Candidate>,
}

impl Janitor {
    /// Scans the hash and checks each owner once.
    pub(super) async fn survey(&self, epoch: Option<&str>) -> Result<Survey> {
        let mut survey = Survey::default();
        let mut scan = self.steps.scan();
        while survey.broken.is_none() {
            let page = match self.steps.page(&mut scan).await {
                // A pass asks the server for the reason; a preview has no epoch to compare.
                Err(_) if scan.is_cut() && epoch.is_some() => {
                    survey.broken = Some(Break::Reconnected);
                    break;
                }
                page => page?,
            };
            let Some(page) = page else { break };
            self.tell_scanned(&page);
            self.learn(&mut survey, page, epoch).await?;
        }
        Ok(survey)
    }

    async fn learn(&self, survey: &mut Survey, page: Page, epoch: Option<&str>) -> Result<()> {
        survey.scanned += page.len() as u64;
        let mut entries = Vec::with_capacity(page.len());
        for (field, value) in page {
            match self.settings.owner_at.owner(&value) {
                Some(owner) => entries.push(Candidate { field, value, owner }),
                None => {
                    survey.skipped += 1;
                    if survey.skipped_first.len() < NAMED {
                        survey.skipped_first.push(field);
                    }
                }
            }
        }
        let mut unknown: Vec<Vec<u8>> = entries
            .iter()
            .filter(|entry| survey.owners.is_absent(&entry.owner).is_none())
            .map(|entry| entry.owner.clone())
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        for some in unknown.chunks(PAGE) {
            let (kept, states) = self.steps.look(epoch, some).await?;
            if !kept {
                survey.broken = Some(Break::DataLost);
            }
            for (owner, state) in some.iter().zip(states) {
                survey.owners.learn(owner.clone(), state)?;
            }
        }
        for entry in entries {
            survey.owners.count(&entry.owner);
            let lists = epoch.is_none() && survey.doomed.len() < LISTED;
            if lists && survey.owners.is_absent(&entry.owner) == Some(true) {
                survey.doomed.push(Candidate {
                    value: Vec::new(),
                    ..entry
                });
            }
        }
        Ok(())
    }

    /// Checks all owners. Starts to watch those without a heartbeat.
    pub(super) async fn look(&self, watch: &mut Watch, report: &mut PassReport) -> Result<Option<Break>> {
        let base = watch.last.clone();
        let survey = self.survey(Some(&watch.epoch)).await?;
        report.scanned += survey.scanned;
        report.skipped = survey.skipped;
        report.skipped_first.clone_from(&survey.skipped_first);
        report.owners = survey.owners.len();
        report.endless = survey.owners.with(HeartbeatState::Endless);
        match survey.broken {
            // A health check gives the exact reason.
            Some(Break::Reconnected) => return Ok(self.catch_up(watch).await?.or(Some(Break::Reconnected))),
            Some(broken) => return Ok(Some(broken)),
            None => {}
        }
        let settle = self.settings.settle;
        if !settle.is_zero()
            && let Some(broken) = self.catch_up(watch).await?
        {
            return Ok(Some(broken));
        }
        let fresh = watch.learn(&survey.owners.absent(), report.owners, base, settle);
        if fresh > 0 && !settle.is_zero() {
            self.tell(&Notice::Settling {
                absent: fresh,
                wait: settle,
            });
            tracing::info!(
                registry = text(&self.settings.hash),
                owners = fresh,
                settle_ms = settle.as_millis(),
                "owners without a heartbeat; checking again after the settle time"
            );
        }
        Ok(None)
    }

    /// Checks the store's health after work that may have taken longer than the tolerated silence.
    pub(super) async fn catch_up(&self, watch: &mut Watch) -> Result<Option<Break>> {
        let (snapshot, _) = self.steps.check(&watch.epoch).await?;
        Ok(watch.checked(snapshot))
    }

    /// Waits for the next due owner, at most until the next health check.
    pub(super) async fn wait(&self, watch: &mut Watch, until: Option<Mono>) -> Result<Option<Break>> {
        let clock = self.clock();
        let rest = until.map_or(TICK, |until| until.since(clock.mono()));
        clock
            .sleep(watch.settles_in().unwrap_or(TICK).min(TICK).min(rest))
            .await;
        self.check_on(watch).await
    }

    /// Checks the store's health one interval after the last check, so that a silence is detected.
    pub(super) async fn check_on(&self, watch: &mut Watch) -> Result<Option<Break>> {
        Ok(match self.next_snapshot(&watch.epoch, &watch.last).await? {
            Ok(snapshot) => watch.checked(snapshot),
            Err(broken) => Some(broken),
        })
    }

    /// Checks the store's health until it responds, at most for the tolerated silence.
    async fn next_snapshot(&self, epoch: &str, last: &ServerSnapshot) -> Result<Result<ServerSnapshot, Break>> {
        loop {
            let checked = self.steps.check(epoch).await;
            let silent = self.clock().mono().since(last.arrived).saturating_sub(TICK);
            match checked {
                Ok(_) if silent > MAX_GAP => return Ok(Err(Break::Silent { silent })),
                Ok((snapshot, _)) => return Ok(Ok(snapshot)),
                Err(error) if !error.is_unavailable() => return Err(error),
                Err(error) if silent > MAX_GAP => {
                    return Ok(Err(Break::Unreachable { reason: error.chain() }));
                }
                Err(_) => self.clock().sleep(BACKOFF / 10).await,
            }
        }
    }

    /// Checks the absent owners again and returns those that are still absent.
    pub(super) async fn second_look(&self, epoch: &str, absent: Dead) -> Result<Result<Dead, Break>> {
        if self.settings.settle.is_zero() {
            return Ok(Ok(absent));
        }
        let mut dead = BTreeMap::new();
        let owners: Vec<Vec<u8>> = absent.keys().cloned().collect();
        for some in owners.chunks(PAGE) {
            let (kept, states) = self.steps.look(Some(epoch), some).await?;
            if !kept {
                return Ok(Err(Break::DataLost));
            }
            for (owner, state) in some.iter().zip(states) {
                if state == HeartbeatState::Absent {
                    dead.insert(owner.clone(), absent.get(owner).copied().unwrap_or(0));
                }
            }
        }
        Ok(Ok(dead))
    }
}
