//! Engagements over HTTP.

use reqwest::Method;
use tenure_core::error::Result;
use tenure_core::id::{EngagementId, ProviderId};
use tenure_core::ledger::engagement::check_except;
use tenure_core::ledger::{Engagement, EngagementChange, Move, NewEngagement};

use super::{RemoteRoster, if_found, required};
use crate::http::request::DaemonResponse;
use crate::roster::{EngagementAnswer, Reservation, Written};
use crate::wire::Code;
use crate::wire::roster as wire;

/// Provider rows are not sent over HTTP: `providers` of every change is empty.
impl RemoteRoster {
    /// As [`Roster::create_engagement`](crate::roster::Roster::create_engagement).
    ///
    /// # Errors
    /// `NotFound` for an unknown provider, `Invalid`, with nothing changed.
    pub async fn create_engagement(&self, engagement: &NewEngagement) -> Result<EngagementAnswer> {
        let path = self.path(&["engagements"]);
        let request = self.store.commit(Method::POST, &path).json(engagement);
        answered(&self.ask(request.expects(&[Code::EngagementConflict])).await?)
    }

    /// As [`Roster::move_engagement`](crate::roster::Roster::move_engagement).
    ///
    /// # Errors
    /// `NotFound` for an unknown engagement or provider, `Invalid`, with nothing changed.
    pub async fn move_engagement(&self, engagement: &EngagementId, to: &Move) -> Result<EngagementAnswer> {
        let path = self.path(&["engagements", engagement.as_str()]);
        let request = self.store.commit(Method::PATCH, &path).json(to);
        answered(&self.ask(request.expects(&[Code::EngagementConflict])).await?)
    }

    /// As [`Roster::engagement`](crate::roster::Roster::engagement).
    ///
    /// # Errors
    /// None of its own.
    pub async fn engagement(&self, engagement: &EngagementId) -> Result<Option<Engagement>> {
        let path = self.path(&["engagements", engagement.as_str()]);
        if_found(self.ask(self.store.read(&path)).await)
    }

    /// As [`Roster::reserve`](crate::roster::Roster::reserve).
    ///
    /// # Errors
    /// `Invalid`, with nothing changed.
    pub async fn reserve(&self, new: &NewEngagement) -> Result<Reservation> {
        self.reserve_except(new, &[]).await
    }

    /// As [`Roster::reserve_except`](crate::roster::Roster::reserve_except).
    ///
    /// # Errors
    /// `Invalid`, `NotFound` for an unknown provider, with nothing changed.
    pub async fn reserve_except(&self, new: &NewEngagement, except: &[ProviderId]) -> Result<Reservation> {
        new.check()?;
        check_except(except)?;
        let body = wire::ReserveRequest {
            except: except.to_vec(),
            ..wire::ReserveRequest::from(new.clone())
        };
        let request = self.store.commit(Method::POST, &self.path(&["reserve"])).json(&body);
        let request = request.expects(&[Code::NoneAvailable, Code::EngagementConflict]);
        let answer = self.ask(request).await?;
        match &answer.problem {
            None => Ok(Reservation::Reserved(changed(&answer)?)),
            Some((Code::NoneAvailable, _)) => Ok(Reservation::NoneAvailable),
            Some((_, problem)) => Ok(Reservation::Conflict(required(problem.engagement.as_deref())?)),
        }
    }
}

fn answered(answer: &DaemonResponse) -> Result<EngagementAnswer> {
    match &answer.problem {
        None => Ok(EngagementAnswer::Done(changed(answer)?)),
        Some((_, problem)) => Ok(EngagementAnswer::Conflict(required(problem.engagement.as_deref())?)),
    }
}

fn changed(answer: &DaemonResponse) -> Result<Written<EngagementChange>> {
    let written: Written<Engagement> = answer.json()?;
    let changed = written.changed;
    Ok(written.map(|engagement| EngagementChange {
        engagement,
        providers: Vec::new(),
        changed,
    }))
}
