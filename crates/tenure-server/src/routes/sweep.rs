//! Sweeping on request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{Code, Problem, SweepAnswer, SweepRequest, ms};
use tenure_core::clock::within;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::{Group, check_name};
use tenure_core::store::Call;
use tenure_core::sweep::{self as core, Eviction, SweepReport};

use super::openapi::Writes;
use crate::app::App;
use crate::audit::Operated;
use crate::extract::{Limits, Names, NoQuery, OptionalJson};
use crate::reply::{Answer, Failure, json};
use crate::room::{Place, Share};

/// How long to wait for what becomes releasable in a moment: the burst delay of 250 ms, and a little.
const DEFAULT_WAIT: Duration = Duration::from_millis(300);
/// The longest such wait.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The longest name of a pass: it goes into every event.
const MAX_PASS: usize = 100;

/// Sweep a group now
///
/// Ends what lapsed, releases what the ended held and deletes orphaned sessions, as the daemon does by itself all the time.
/// `dry_run` only lists what would go; `force` lifts the brake, but never a grace period; `reconcile` also looks for drift
/// between sessions and their index, and repairs it.
#[utoipa::path(
    post, path = "/v1/groups/{g}/sweep", tag = "sweep",
    security(("token" = ["operate"])),
    request_body(content = Option<SweepRequest>, description = "May be left out"),
    responses((status = 200, description = "What was done, or would be", body = SweepAnswer), Writes)
)]
pub(crate) async fn run(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    _: NoQuery,
    Limits(call): Limits,
    operated: Operated,
    share: Share,
    OptionalJson(request): OptionalJson<SweepRequest>,
) -> Answer {
    operated.note(details(&request));
    asked(&app, share, &group, call, request).await
}

/// What was asked for, for the log of operators.
fn details(request: &SweepRequest) -> String {
    let asked = [
        ("dry_run", request.dry_run),
        ("force", request.force),
        ("reconcile", request.reconcile),
    ];
    let asked: Vec<_> = asked.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    asked.join(" ")
}

async fn asked(app: &Arc<App>, share: Share, group: &Group, call: Call, request: SweepRequest) -> Answer {
    let pass = pass_name(app, &request)?;
    let wait = request.wait_ms.map_or(DEFAULT_WAIT, Duration::from_millis);
    if wait > MAX_WAIT {
        return Err(Error::invalid(format!("the wait_ms {} is above {}", ms(wait), ms(MAX_WAIT))).into());
    }
    let Some(_place) = Place::enter(app, |app| &app.sweeps, share) else {
        let problem = Problem::new(Code::Overloaded, "enough sweeps are under way");
        return Err(Failure::from(
            problem
                .with_outcome(Outcome::Unchanged)
                .with_retry_after(Duration::from_secs(1)),
        ));
    };
    // A sweep may take long, but a store that is away is told at once.
    app.now().await?;
    let asked = core::SweepRequest {
        dry_run: request.dry_run,
        force: request.force,
        reconcile: request.reconcile,
    };
    let limit = app.settings.sweep_timeout;
    let report = within(&*app.clock, limit, sweep(app, group, &asked, &pass, wait, call))
        .await
        .unwrap_or_else(|| {
            let message = format!(
                "the sweep took longer than {} ms; what it did is in the events of pass {pass}",
                limit.as_millis()
            );
            Err(Error::unavailable(message, Outcome::Unknown))
        })?;
    json(StatusCode::OK, &SweepAnswer::new(pass, request.dry_run, report))
}

fn pass_name(app: &App, request: &SweepRequest) -> Result<String> {
    let Some(pass) = &request.pass else {
        return Ok(format!("http-{:016x}", app.clock.entropy()));
    };
    check_name("pass", pass)?;
    if pass.len() > MAX_PASS {
        return Err(Error::invalid(format!(
            "the pass is {} characters long; at most {MAX_PASS}",
            pass.len()
        )));
    }
    Ok(pass.clone())
}

/// One pass, and a second one when something becomes releasable within `wait`.
async fn sweep(
    app: &App,
    group: &Group,
    asked: &core::SweepRequest,
    pass: &str,
    wait: Duration,
    call: Call,
) -> Result<SweepReport> {
    let mut report = app.store.sweep(group, asked, pass, call).await?;
    let soon = report.next_release_in.filter(|soon| *soon <= wait && !asked.dry_run);
    if let Some(soon) = soon {
        app.clock.sleep(soon).await;
        let again = core::SweepRequest::default();
        let more = app.store.sweep(group, &again, &format!("{pass}.again"), call).await?;
        report.ended += more.ended;
        report.reaped += more.reaped;
        report.skipped += more.skipped;
        report.braked = more.braked;
        report.next_release_in = more.next_release_in;
        merge(&mut report.evicted, more.evicted);
    }
    Ok(report)
}

/// Adds what the second pass removed to what the first one did.
fn merge(evicted: &mut Vec<Eviction>, more: Vec<Eviction>) {
    for eviction in more {
        match evicted.iter_mut().find(|known| known.tenure == eviction.tenure) {
            Some(known) => {
                for (registry, count) in eviction.claims {
                    *known.claims.entry(registry).or_default() += count;
                }
                known.leases += eviction.leases;
                known.connections += eviction.connections;
            }
            None => evicted.push(eviction),
        }
    }
}
