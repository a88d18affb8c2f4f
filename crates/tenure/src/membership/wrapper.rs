//! The tenure of the wrapper around this process: `tenure join` or `tenure lock`.
//!
//! A process that inherits a tenure sends heartbeats for it, too, so its verdicts need no word from the wrapper. It never
//! joins, never leaves, and names no revision: an operator's release that it noticed may concern another process.

use std::env;
use std::path::PathBuf;

use serde::Deserialize;
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::{Group, TenureId};
use tenure_core::membership::{Beat, EndReason, Joined, Revision};
use tenure_core::timeout::Timeout;

use crate::client::Context;
use crate::registry::PATIENCE;

/// What the wrapper tells its command.
#[derive(Debug, Clone)]
pub(crate) struct Wrapper {
    pub(crate) group: Group,
    /// The tenure at the start of the command.
    pub(crate) first: TenureId,
    /// Names the current tenure: the wrapper joins again after a lapse.
    file: Option<PathBuf>,
}

/// The part of `TENURE_FILE` that is read.
#[derive(Deserialize)]
struct Content {
    group: Group,
    tenure: TenureId,
}

impl Wrapper {
    /// The wrapper named by `TENURE_ID`, `TENURE_GROUP` and `TENURE_FILE`, if any.
    ///
    /// # Errors
    /// `Invalid` for variables that no wrapper sets.
    pub(crate) fn find() -> Result<Option<Self>> {
        let (Ok(tenure), Ok(group)) = (env::var("TENURE_ID"), env::var("TENURE_GROUP")) else {
            return Ok(None);
        };
        Ok(Some(Self {
            group: Group::new(&group)?,
            first: tenure.parse()?,
            file: env::var_os("TENURE_FILE").map(PathBuf::from),
        }))
    }

    /// The wrapper's tenure now. Blocks.
    fn current(&self) -> Result<TenureId> {
        let Some(file) = &self.file else {
            return Ok(self.first.clone());
        };
        let unreadable =
            |error: String| Error::unavailable(format!("TENURE_FILE {}: {error}", file.display()), Outcome::Unchanged);
        let text = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
        let content: Content = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
        // In a wrapper within a wrapper it may be the file of the outer one.
        let is_ours = content.group == self.group && content.tenure.member() == self.first.member();
        Ok(if is_ours { content.tenure } else { self.first.clone() })
    }

    /// Takes over the wrapper's tenure, unless it is `ended`. Also returns when it was confirmed.
    ///
    /// # Errors
    /// `Unavailable` while the wrapper has not joined again; `Ended`. Nothing changed.
    pub(super) async fn take_over(&self, context: &Context, ended: Option<&TenureId>) -> Result<(Joined, Mono)> {
        let this = self.clone();
        // The file may be on a disk that hangs.
        let read = context.runtime.spawn_blocking(move || this.current()).await;
        let tenure = read.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "reading TENURE_FILE panicked")))?;
        if ended == Some(&tenure) {
            return Err(Error::unavailable(
                "the wrapper has not joined again",
                Outcome::Unchanged,
            ));
        }
        let member = context.read(context.store.member(&self.group, tenure.member())).await?;
        let Some(member) = member.filter(|member| member.tenure == tenure) else {
            return Err(Error::ended(&tenure, EndReason::Unknown));
        };
        let beat = Beat {
            tenure: tenure.clone(),
            ttl: None,
            revision: Revision::NONE,
            seen: Revision::NONE,
        };
        let sent_at = context.clock.mono();
        let beated = context.batcher.beat(&self.group, beat);
        let beaten = Timeout::change(PATIENCE)
            .call(&*context.clock, "the store", beated)
            .await?;
        let (expires_in, _) = beaten.reply.renewed(&tenure)?;
        let joined = Joined {
            tenure,
            ttl: member.ttl,
            expires_in,
            superseded: None,
            as_of: beaten.as_of,
        };
        Ok((joined, sent_at))
    }
}
