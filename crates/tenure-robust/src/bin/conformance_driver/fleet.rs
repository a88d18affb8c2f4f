//! Operations of a fleet.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tenure::Verdict;
use tenure::fleet::{Assignment, Fleet, FleetSettings, StoredTargets};

use crate::answer::{Answered, Command, Refusal};
use crate::member::Member;
use crate::{Driver, locked};

impl Driver {
    /// Works on the targets of the group: each cycle is a line in a file.
    pub(crate) fn fleet(&self, member: &Member, command: &Command) -> Answered {
        let file = OpenOptions::new().append(true).create(true).open(command.text("file")?);
        let file = Arc::new(file.map_err(|error| Refusal::bad_command(&error.to_string()))?);
        let period = command.duration("period_ms").unwrap_or_default();
        let mut settings = FleetSettings::default();
        settings.placing.stability = command.duration("stability_ms").unwrap_or(settings.placing.stability);
        settings.placing.min_hold = settings.placing.stability;
        let group = self.client.group(member.membership.group().as_str())?;
        let fleet = Fleet::builder(&member.membership)
            .targets(StoredTargets::of(&self.client, &group))
            .settings(settings)
            .start(move |target: Assignment| {
                let file = Arc::clone(&file);
                async move {
                    while target.next_cycle().await {
                        let at = clock_gettime(ClockId::Monotonic);
                        let at = i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec);
                        if target.verdict() == Verdict::Held {
                            let line = format!("{} {} {at}\n", target.target(), target.token());
                            // A line that cannot be written is missed by the case.
                            _ = (&*file).write_all(line.as_bytes());
                        }
                        target.rest(period).await;
                    }
                }
            })?;
        locked(&self.fleets).insert(member.handle.clone(), Arc::new(fleet));
        Ok(json!({}))
    }

    pub(crate) async fn drain(&self, member: &Member) -> Answered {
        let fleet = crate::found(&self.fleets, &member.handle)?;
        Ok(json!({ "stubborn": fleet.shut_down().await.stubborn }))
    }
}
