//! Removes a registration, but never one that another process made under the same id.

use super::agent::{Agent, RegisteredBy};
use super::{Failure, Service};

/// The result of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// The registration was removed.
    Gone,
    /// It did not exist.
    WasNotThere,
    /// Another life of the service, or an unknown process, registered the id since. That registration was left alone.
    Another,
}

/// Removes a registration and reads back that it is gone; retries once if it exists again.
///
/// Only a registration of `life` is removed; one without a life was not made by Tenure.
///
/// A Consul agent has no compare-and-delete: a registration made between the read and the removal is removed as well.
/// Its owner notices at its next beat.
pub(crate) async fn remove(agent: &dyn Agent, id: &str, life: Option<&str>) -> Result<Removed, Failure> {
    let mut removed = Removed::WasNotThere;
    for _ in 0..2 {
        match compare(agent, id, life, None).await? {
            RegistrationMatch::Missing => return Ok(removed),
            RegistrationMatch::Another => {
                return Ok(match removed {
                    Removed::WasNotThere => Removed::Another,
                    gone => gone,
                });
            }
            RegistrationMatch::Ours | RegistrationMatch::Differs => {}
        }
        agent.deregister(id).await?;
        removed = Removed::Gone;
    }
    match compare(agent, id, life, None).await? {
        RegistrationMatch::Missing | RegistrationMatch::Another => Ok(removed),
        RegistrationMatch::Ours | RegistrationMatch::Differs => Err(Failure::Odd(format!(
            "{id} exists again after it was deregistered twice"
        ))),
    }
}

/// The registration under an id, compared with the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegistrationMatch {
    /// Nothing is registered.
    Missing,
    /// Of this life, with the expected properties.
    Ours,
    /// Of this life, with different properties. Also of unknown origin, when the caller keeps the registration.
    Differs,
    /// Of another life. Also of unknown origin, when the caller removes the registration.
    Another,
}

/// Compares the registration under an id with one life; `None` matches any. Pass `service`, the expected properties, to
/// keep a registration, and `None` to remove it.
pub(crate) async fn compare(
    agent: &dyn Agent,
    id: &str,
    life: Option<&str>,
    service: Option<&Service>,
) -> Result<RegistrationMatch, Failure> {
    Ok(match agent.look(id, service).await? {
        None => RegistrationMatch::Missing,
        Some(listed) => match (&listed.by, life) {
            (RegisteredBy::Another, Some(_)) => RegistrationMatch::Another,
            (RegisteredBy::Life(theirs), Some(ours)) if theirs != ours => RegistrationMatch::Another,
            (RegisteredBy::Unknown, Some(_)) if service.is_none() => RegistrationMatch::Another,
            (RegisteredBy::Unknown, Some(_)) => RegistrationMatch::Differs,
            _ if listed.same => RegistrationMatch::Ours,
            _ => RegistrationMatch::Differs,
        },
    })
}
