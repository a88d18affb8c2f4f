//! Targets: what there is to work on. Rows alone; nobody's life depends on them.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use tenure_core::call::Serve;
use tenure_core::event::EventKind;
use tenure_core::store::{Call, Page};
use tenure_core::target::{PutTarget, RemoveTarget, Target, TargetOf, TargetSpec, Targets};
use tenure_core::{Group, LeaseName, Result};

use crate::error::Cause;
use crate::event::Draft;
use crate::page::{Listing, cursor, cut, name_after};
use crate::sql::{read_name, statements};
use crate::step::{Answer, Step};
use crate::store::SqliteStore;

statements! { "target.sql":
    ONE = "one",
    UPSERT = "upsert",
    DELETE = "delete",
    PAGE = "page",
}

fn read_target(row: &Row<'_>) -> Result<Target, Cause> {
    let spec = TargetSpec {
        paused: row.get(1)?,
        weight: row.get(2)?,
    };
    Ok(Target {
        target: read_name(row, 0)?,
        spec,
    })
}

fn target_of(sql: &Connection, id: i64, target: &LeaseName) -> Result<Option<Target>, Cause> {
    let mut look = sql.prepare_cached(ONE)?;
    let mut rows = look.query(params![id, target.as_str()])?;
    rows.next()?.map(read_target).transpose()
}

impl Step<'_> {
    /// Makes one, or replaces its specification. Tells whether it is new.
    fn put_target(&mut self, target: &LeaseName, spec: TargetSpec) -> Answer<bool> {
        let before = target_of(self.sql, self.id, target)?;
        if before.as_ref().is_some_and(|before| before.spec == spec) {
            return Ok(Ok(false));
        }
        let mut upsert = self.sql.prepare_cached(UPSERT)?;
        upsert.execute(params![self.id, target.as_str(), spec.paused, spec.weight])?;
        self.tell_target(target, if before.is_none() { "added" } else { "changed" })?;
        Ok(Ok(before.is_none()))
    }

    /// Removes one. Tells whether it was there.
    fn remove_target(&mut self, target: &LeaseName) -> Answer<bool> {
        let mut delete = self.sql.prepare_cached(DELETE)?;
        let known = delete.execute(params![self.id, target.as_str()])? > 0;
        if known {
            self.tell_target(target, "removed")?;
        }
        Ok(Ok(known))
    }

    fn tell_target(&mut self, target: &LeaseName, what: &str) -> Result<(), Cause> {
        self.emit(Draft::new(EventKind::TargetChanged).lease(target).because(what))
    }
}

#[async_trait]
impl Serve<PutTarget> for SqliteStore {
    async fn serve(&self, group: &Group, ask: PutTarget, call: Call) -> Result<bool> {
        self.step(group, call, move |step| step.put_target(&ask.target, ask.spec))
            .await
    }
}

#[async_trait]
impl Serve<RemoveTarget> for SqliteStore {
    async fn serve(&self, group: &Group, ask: RemoveTarget, call: Call) -> Result<bool> {
        self.step(group, call, move |step| step.remove_target(&ask.target))
            .await
    }
}

#[async_trait]
impl Serve<TargetOf> for SqliteStore {
    async fn serve(&self, group: &Group, ask: TargetOf, _: Call) -> Result<Option<Target>> {
        let Some(live) = self.live(group)? else { return Ok(None) };
        self.read(move |sql| target_of(sql, live.id, &ask.target)).await
    }
}

#[async_trait]
impl Serve<Targets> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Targets, _: Call) -> Result<Page<Target>> {
        let (after, limit) = (name_after(Listing::Targets, &ask.page)?, ask.page.limit);
        let Some(live) = self.live(group)? else {
            return Ok(Page::default());
        };
        let read = move |sql: &Connection| {
            let mut select = sql.prepare_cached(PAGE)?;
            let mut rows = select.query(params![live.id, after, limit + 1])?;
            let mut targets = Vec::new();
            while let Some(row) = rows.next()? {
                targets.push(read_target(row)?);
            }
            Ok(targets)
        };
        let targets = self.read(read).await?;
        Ok(cut(targets, limit, |target| {
            cursor(Listing::Targets, target.target.as_str())
        }))
    }
}
