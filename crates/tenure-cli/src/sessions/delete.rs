//! Deleting sessions.

use clap::Args;
use serde::Serialize;
use tenure_core::Store;
use tenure_core::id::SessionId;
use tenure_core::session::{DeleteOutcome, Epoch};
use tenure_core::store::Call;

use super::{AccessArgs, missing};
use crate::exit::{DONE, FAILED, say};
use crate::output::{json, table};

#[derive(Debug, Clone, Args)]
pub(super) struct Delete {
    /// The sessions.
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<SessionId>,
    #[command(flatten)]
    place: AccessArgs,
}

/// A deleted session.
#[derive(Debug, Serialize)]
struct Deleted {
    session: SessionId,
    outcome: &'static str,
    epoch: Epoch,
}

impl Delete {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.store.with(async |store| {
            let mut deleted = Vec::new();
            let done = self.delete_all(store, &mut deleted).await;
            // Deletions before a failure stay.
            self.tell(&deleted)?;
            done
        })
    }

    async fn delete_all(&self, store: &dyn Store, deleted: &mut Vec<Deleted>) -> anyhow::Result<u8> {
        let group = &self.place.group.name;
        let mut code = DONE;
        for session in &self.sessions {
            let refusal = match store.delete_session(group, session, Call::default()).await? {
                DeleteOutcome::Deleted { epoch } => {
                    deleted.push(Deleted {
                        session: session.clone(),
                        outcome: "deleted",
                        epoch,
                    });
                    continue;
                }
                DeleteOutcome::Active { connections } => {
                    format!("the session {session} in the group {group} has connections: {connections}; it stays")
                }
                DeleteOutcome::NotFound => missing(session, group),
            };
            say(refusal);
            code = FAILED;
        }
        Ok(code)
    }

    fn tell(&self, deleted: &[Deleted]) -> anyhow::Result<()> {
        if self.place.format.json {
            return json(&serde_json::json!({ "sessions": deleted }));
        }
        if deleted.is_empty() {
            return Ok(());
        }
        let rows = deleted
            .iter()
            .map(|one| [one.session.to_string(), one.outcome.to_owned(), one.epoch.to_string()]);
        table(["session", "outcome", "epoch"], rows.collect())
    }
}
