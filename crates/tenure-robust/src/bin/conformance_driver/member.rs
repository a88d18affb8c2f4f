//! Operations of a member: join, verdict, leave, labels, claims, sessions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tenure::wire::Code;
use tenure::{
    Attach, ClaimOutcome, Connection, DetachOutcome, JoinOptions, Membership, PageRequest, PatchOutcome, Phase,
};

use crate::answer::{Answered, Command, Refusal};
use crate::{Driver, locked, write};

/// A membership and what it has attached.
pub(crate) struct Member {
    pub(crate) handle: String,
    pub(crate) membership: Membership,
    /// An end that the program asked for is no news.
    pub(crate) has_left: AtomicBool,
    connections: Mutex<HashMap<(String, String), Connection>>,
}

impl Driver {
    pub(crate) async fn join(&self, command: &Command) -> Answered {
        let options = JoinOptions {
            ttl: command.duration("ttl_ms").unwrap_or(JoinOptions::default().ttl),
            labels: command.object("labels")?,
            rejoin: command.flag("rejoin").unwrap_or(true),
            ..JoinOptions::named(command.text("member")?)?
        };
        Ok(self.add(self.group(command)?.join(options).await?))
    }

    /// Reports what becomes of a membership, and returns its handle.
    pub(crate) fn add(&self, membership: Membership) -> Value {
        let (handle, tenure) = (self.name("m"), membership.tenure().to_string());
        let member = Arc::new(Member {
            handle: handle.clone(),
            membership,
            has_left: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        locked(&self.members).insert(handle.clone(), Arc::clone(&member));
        tokio::spawn(async move { member.report().await });
        json!({ "handle": handle, "tenure": tenure })
    }

    pub(crate) async fn list_members(&self, command: &Command) -> Answered {
        let (group, mut page, mut all) = (self.group(command)?, PageRequest::default(), Vec::new());
        loop {
            let members = group.members(&page).await?;
            all.extend(members.items.into_iter().map(|member| {
                json!({
                    "member": member.member,
                    "tenure": member.tenure,
                    "alive": member.alive,
                    "labels": member.labels,
                })
            }));
            page.after = members.next;
            if page.after.is_none() {
                return Ok(json!({ "members": all }));
            }
        }
    }

    pub(crate) async fn act(&self, member: &Arc<Member>, command: &Command) -> Answered {
        let membership = &member.membership;
        match command.text("op")? {
            "verdict" => Ok(json!({ "verdict": word(membership.verdict()), "tenure": membership.tenure() })),
            "leave" => {
                member.has_left.store(true, Ordering::SeqCst);
                membership.leave().await?;
                Ok(json!({}))
            }
            "labels" => {
                membership.set_labels(command.object("labels")?).await?;
                Ok(json!({}))
            }
            "claim" | "release_claim" => member.claim(command).await,
            "acquire" => self.acquire(member, command).await,
            "attach" => member.attach(command).await,
            _ => member.detach(command).await,
        }
    }

    pub(crate) async fn owner(&self, command: &Command) -> Answered {
        let registry = tenure::RegistryName::new(command.text("registry")?)?;
        let (group, key) = (
            tenure::Group::new(command.text("group")?)?,
            tenure::Key::new(command.text("key")?)?,
        );
        let claim = self.client.store().claim_of(&group, &registry, &key).await?;
        Ok(claim.map_or(
            Value::Null,
            |claim| json!({ "owner": claim.owner, "tenure": claim.tenure, "alive": claim.alive }),
        ))
    }

    pub(crate) async fn session(&self, command: &Command) -> Answered {
        let session = self
            .group(command)?
            .sessions()
            .look_up(command.text("session")?)
            .await?;
        Ok(session.map_or(Value::Null, |session| json!(session)))
    }

    pub(crate) async fn sessions(&self, command: &Command) -> Answered {
        let state = command.optional("state").map(tenure::SessionState::parse).transpose()?;
        let age = command.duration("older_than_ms").unwrap_or_default();
        let (sessions, mut page) = (self.group(command)?.sessions(), PageRequest::default());
        let mut all = Vec::new();
        loop {
            let listed = sessions.list_older_than(state, age, &page).await?;
            all.extend(listed.items);
            page.after = listed.next;
            if page.after.is_none() {
                return Ok(json!({ "sessions": all }));
            }
        }
    }

    pub(crate) async fn patch_session(&self, command: &Command) -> Answered {
        let (session, data) = (command.text("session")?, command.object("data")?);
        let member = command
            .optional("handle")
            .map(|handle| crate::found(&self.members, handle));
        let outcome = match member.transpose()? {
            Some(member) => member.patch(session, &data).await?,
            None => self.group(command)?.sessions().patch(session, &data).await?,
        };
        match outcome {
            PatchOutcome::Patched(session) => Ok(json!(session)),
            PatchOutcome::NotFound => Err(Refusal::of(Code::SessionNotFound, None)),
            PatchOutcome::Full { .. } => Err(Refusal::of(Code::SessionFull, None)),
        }
    }
}

impl Member {
    async fn claim(&self, command: &Command) -> Answered {
        let (registry, key) = (
            self.membership.registry(command.text("registry")?)?,
            command.text("key")?,
        );
        if command.text("op")? == "release_claim" {
            registry.release(key).await?;
            return Ok(json!({}));
        }
        let outcome = match command.flag("if_absent") {
            Some(true) => registry.claim_if_absent(key).await?,
            _ => registry.claim(key).await?,
        };
        match outcome {
            ClaimOutcome::New => Ok(json!({ "outcome": "new" })),
            ClaimOutcome::Kept => Ok(json!({ "outcome": "kept" })),
            ClaimOutcome::Moved { .. } => Ok(json!({ "outcome": "moved" })),
            ClaimOutcome::Held { .. } => Err(Refusal::of(Code::ClaimHeld, None)),
        }
    }

    async fn attach(&self, command: &Command) -> Answered {
        let (session, name) = (command.text("session")?, command.text("connection")?);
        let mut attach = self
            .membership
            .sessions()
            .attach(session, name)
            .data(command.object("data")?);
        if let Some(grace) = command.duration("grace_ms") {
            attach = attach.grace(grace);
        }
        let connection = match attach.await? {
            Attach::Attached(connection) => connection,
            Attach::AliasTaken { .. } => return Err(Refusal::of(Code::AliasTaken, None)),
            Attach::Gone => return Err(Refusal::of(Code::SessionNotFound, None)),
            Attach::Full { .. } => return Err(Refusal::of(Code::SessionFull, None)),
        };
        let answer = json!({
            "outcome": connection.how(),
            "epoch": connection.epoch(),
            "connections": connection.session().connections,
        });
        locked(&self.connections).insert((session.to_owned(), name.to_owned()), connection);
        Ok(answer)
    }

    async fn detach(&self, command: &Command) -> Answered {
        let name = (
            command.text("session")?.to_owned(),
            command.text("connection")?.to_owned(),
        );
        let connection = locked(&self.connections).remove(&name);
        let connection = connection.ok_or_else(|| Refusal::bad_command("the connection is not attached here"))?;
        match connection.detach().await? {
            DetachOutcome::Detached { .. } => Ok(json!({})),
            DetachOutcome::NotAttached | DetachOutcome::Stale { .. } => Err(Refusal::of(Code::NotFound, None)),
            _ => Err(Refusal::of(Code::NotHolder, None)),
        }
    }

    /// Changes session data under the tenure of a connection to it.
    async fn patch(&self, session: &str, data: &tenure::Data) -> Result<PatchOutcome, Refusal> {
        let name = locked(&self.connections)
            .keys()
            .find(|(attached, _)| attached == session)
            .cloned();
        let name = name.ok_or_else(|| Refusal::bad_command("the session has no connection here"))?;
        let connection = locked(&self.connections).remove(&name);
        let connection = connection.ok_or_else(|| Refusal::bad_command("the connection is in use"))?;
        let patched = connection.patch(data).await;
        locked(&self.connections).insert(name, connection);
        Ok(patched?)
    }

    /// Reports each end of a tenure, and each new one.
    async fn report(&self) {
        let mut status = self.membership.watch();
        let mut tenure = self.membership.tenure();
        let mut is_over = false;
        loop {
            let now = status.borrow_and_update().clone();
            let has_ended = now.tenure != tenure || !matches!(now.phase, Phase::Beating | Phase::Paused);
            let line = |event| json!({ "event": event, "handle": self.handle, "member": self.membership.member() });
            if has_ended && !is_over && !self.has_left.load(Ordering::SeqCst) {
                let mut line = line("ended");
                line["tenure"] = json!(tenure);
                line["reason"] = json!(now.last_end.map(tenure::EndReason::as_str));
                write(&line);
            }
            is_over = has_ended;
            if now.tenure != tenure {
                tenure = now.tenure.clone();
                is_over = !matches!(now.phase, Phase::Beating | Phase::Paused);
                let mut line = line("rejoined");
                line["tenure"] = json!(tenure);
                write(&line);
            }
            if matches!(now.phase, Phase::Stopped { .. }) || status.changed().await.is_err() {
                return;
            }
        }
    }
}

pub(crate) fn word(verdict: tenure::Verdict) -> &'static str {
    match verdict {
        tenure::Verdict::Held => "held",
        tenure::Verdict::Uncertain => "uncertain",
        tenure::Verdict::Lost => "lost",
    }
}
