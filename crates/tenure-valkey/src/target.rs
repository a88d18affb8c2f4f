//! Targets: the units of work that a fleet places on its nodes.

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::id::{Group, LeaseName};
use tenure_core::store::{Call, Page};
use tenure_core::target::{PutTarget, RemoveTarget, Target, TargetOf, TargetSpec, Targets};

use crate::reply::{Read, Reader};
use crate::store::ValkeyStore;
use crate::view::foreign;

#[async_trait]
impl Serve<PutTarget> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: PutTarget, call: Call) -> Result<bool> {
        self.announce(group).await?;
        let invocation = self
            .timely_call(group, call)
            .arg(ask.target.as_str())
            .arg(show(ask.spec));
        self.connection
            .call(&self.scripts.put_target, invocation, |reader, _| {
                Ok(reader.number()? != 0)
            })
            .await
    }
}

#[async_trait]
impl Serve<RemoveTarget> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: RemoveTarget, call: Call) -> Result<bool> {
        let invocation = self.timely_call(group, call).arg(ask.target.as_str());
        self.connection
            .call(&self.scripts.remove_target, invocation, |reader, _| {
                Ok(reader.number()? != 0)
            })
            .await
    }
}

#[async_trait]
impl Serve<TargetOf> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: TargetOf, _: Call) -> Result<Option<Target>> {
        Ok(self.targets_by_name(group, &[ask.target.to_string()]).await?.pop())
    }
}

#[async_trait]
impl Serve<Targets> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Targets, _: Call) -> Result<Page<Target>> {
        let (names, next) = self.page_of_names(group, ("HSCAN", "targets"), &ask.page).await?;
        let items = self.targets_by_name(group, &names).await?;
        Ok(Page { items, next })
    }
}

impl ValkeyStore {
    /// The targets with these names that exist, in the order asked.
    async fn targets_by_name(&self, group: &Group, names: &[String]) -> Result<Vec<Target>> {
        let rows = self
            .connection
            .call(
                &self.scripts.targets_by_name,
                Self::read_call(group).args(names),
                |reader, _| read_targets(reader),
            )
            .await?;
        rows.into_iter()
            .map(|(target, spec)| {
                let target = LeaseName::new(&target).map_err(foreign)?;
                let spec = read(&spec).ok_or_else(|| foreign("a target with an invalid specification"))?;
                Ok(Target { target, spec })
            })
            .collect()
    }
}

/// The stored form: whether it is paused, and its weight.
fn show(spec: TargetSpec) -> String {
    format!("{} {}", u8::from(spec.paused), spec.weight)
}

fn read(text: &str) -> Option<TargetSpec> {
    let (paused, weight) = text.split_once(' ')?;
    let paused = match paused {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let weight = weight.parse().ok()?;
    TargetSpec { paused, weight }.check().ok()
}

fn read_targets(reader: &mut Reader) -> Read<Vec<(String, String)>> {
    let mut rows = reader.array()?;
    let mut found = Vec::with_capacity(rows.left());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        found.push((row.text()?, row.text()?));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_specification_round_trips() {
        for spec in [
            TargetSpec::default(),
            TargetSpec {
                paused: true,
                weight: 1000,
            },
        ] {
            assert_eq!(read(&show(spec)), Some(spec));
        }
        for nonsense in ["", "0", "2 1", "0 0", "0 1001", "0 x", "paused 1"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
