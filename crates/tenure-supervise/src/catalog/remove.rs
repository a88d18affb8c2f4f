//! Taking a registration away: this one, and not what somebody else has registered under the same id.

use super::agent::{Agent, By};
use super::{Failure, Service};

/// What became of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// It is gone now.
    Gone,
    /// It was not there.
    WasNotThere,
    /// Another life of the service has registered it since, or somebody who does not say; that was left alone.
    Another,
}

/// Removes a registration and reads back that it is gone; once more, when it is there again.
///
/// Only what is of `life` is removed: what does not say of which life it is, Tenure has not registered.
///
/// There is no compare-and-delete at a Consul agent: a registration that is made between the look and the removal goes
/// with it, and its owner notices that at its next beat.
pub(crate) async fn remove(agent: &dyn Agent, id: &str, life: Option<&str>) -> Result<Removed, Failure> {
    let mut removed = Removed::WasNotThere;
    for _ in 0..2 {
        match look(agent, id, life, None).await? {
            Found::Nothing => return Ok(removed),
            Found::Another => {
                return Ok(match removed {
                    Removed::WasNotThere => Removed::Another,
                    gone => gone,
                });
            }
            Found::Ours | Found::Differs => {}
        }
        agent.deregister(id).await?;
        removed = Removed::Gone;
    }
    match look(agent, id, life, None).await? {
        Found::Nothing | Found::Another => Ok(removed),
        Found::Ours | Found::Differs => Err(Failure::Odd(format!(
            "{id} is there again after it was deregistered twice"
        ))),
    }
}

/// What is found under an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// Of this life, and as it should be.
    Ours,
    /// Of this life or, for one who keeps it as it should be, of nobody; and not as it should be.
    Differs,
    /// Of another life or, for one who removes, of nobody.
    Another,
}

/// Looks, with the eyes of one life; `None` is anybody's. With `service` as it should be, for one who keeps it so; without,
/// for one who removes it.
pub(crate) async fn look(
    agent: &dyn Agent,
    id: &str,
    life: Option<&str>,
    service: Option<&Service>,
) -> Result<Found, Failure> {
    Ok(match agent.look(id, service).await? {
        None => Found::Nothing,
        Some(listed) => match (&listed.by, life) {
            (By::Another, Some(_)) => Found::Another,
            (By::Life(theirs), Some(ours)) if theirs != ours => Found::Another,
            (By::Unknown, Some(_)) if service.is_none() => Found::Another,
            (By::Unknown, Some(_)) => Found::Differs,
            _ if listed.same => Found::Ours,
            _ => Found::Differs,
        },
    })
}
