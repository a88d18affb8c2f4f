//! Sweeps on request.

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

use super::openapi::WriteErrors;
use crate::app::App;
use crate::audit::AuditDetails;
use crate::extract::{NoQuery, NotAfter, OptionalJson, PathParams};
use crate::reply::{Failure, RouteResult, json};
use crate::room::{Permit, Share};

/// The default wait for holdings that become releasable: the burst delay of 250 ms, plus a margin.
const DEFAULT_WAIT: Duration = Duration::from_millis(300);
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The longest name of a pass, which is part of every event.
const MAX_PASS: usize = 100;

/// Sweep a group now
///
/// Ends lapsed tenures, releases holdings of ended tenures and deletes orphaned sessions, as the daemon does continuously.
/// `dry_run` only reports what would be removed; `force` lifts the brake, but never a grace period; `reconcile` also repairs
/// drift between sessions and their index.
#[utoipa::path(
    post, path = "/v1/groups/{g}/sweep", tag = "sweep",
    security(("token" = ["operate"])),
    request_body(content = Option<SweepRequest>, description = "May be left out"),
    responses((status = 200, description = "What was removed, or would be", body = SweepAnswer), WriteErrors)
)]
pub(crate) async fn run(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    audit: AuditDetails,
    share: Share,
    OptionalJson(request): OptionalJson<SweepRequest>,
) -> RouteResult {
    audit.set(details(&request));
    asked(&app, share, &group, call, request).await
}

/// The options, for the audit log.
fn details(request: &SweepRequest) -> String {
    let asked = [
        ("dry_run", request.dry_run),
        ("force", request.force),
        ("reconcile", request.reconcile),
    ];
    let asked: Vec<_> = asked.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    asked.join(" ")
}

async fn asked(app: &Arc<App>, share: Share, group: &Group, call: Call, request: SweepRequest) -> RouteResult {
    let pass = pass_name(app, &request)?;
    let wait = request.wait_ms.map_or(DEFAULT_WAIT, Duration::from_millis);
    if wait > MAX_WAIT {
        return Err(Error::invalid(format!("the wait_ms {} is above {}", ms(wait), ms(MAX_WAIT))).into());
    }
    let Some(_place) = Permit::enter(app, |app| &app.sweeps, share) else {
        let problem = Problem::new(Code::Overloaded, "too many concurrent sweeps");
        return Err(Failure::from(
            problem
                .with_outcome(Outcome::Unchanged)
                .with_retry_after(Duration::from_secs(1)),
        ));
    };
    // A sweep may take long, but an unreachable store is reported immediately.
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
                "the sweep exceeded {} ms; its results are in the events of pass {pass}",
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

/// One pass, and a second one if something becomes releasable within `wait`.
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

/// Adds the second report to the first.
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
