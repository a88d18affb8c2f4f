//! The token check of every request.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::http::{HeaderMap, Uri};
use tenure_core::clock::Clock;
use tenure_core::error::Result;
use tenure_core::id::{Group, RosterName};
use tenure_core::roster::roster_of;
use tenure_core::time::StoreTime;
use tokio::sync::watch;

use super::caller::Caller;
use super::file;
use super::grant::{Grant, Grants};
use super::refusal::Refusal;
use super::rule::{Resource, Rule};
use super::scope::Scope;
use super::secret::{Hash, is_ours};
use crate::jwt::{TokenError, Verifier, bearer};
use crate::meters;

/// The tokens of this daemon, if it requires one.
#[derive(Debug, Default)]
pub(crate) struct Guard(Option<Arc<TokenFile>>);

impl Guard {
    /// Reads the token file, if one is configured.
    ///
    /// # Errors
    /// `Misconfigured`, naming the file and the mistake.
    pub(crate) fn new(file: Option<PathBuf>) -> Result<Self> {
        let token_file = file.map(TokenFile::new).transpose()?;
        Ok(Self(token_file.map(Arc::new)))
    }

    /// Whether callers need a token.
    pub(crate) fn asks(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn token_file(&self) -> Option<&Arc<TokenFile>> {
        self.0.as_ref()
    }

    /// Whether a caller that was admitted earlier still would be.
    pub(crate) fn still_knows(&self, caller: &Caller, now: impl FnOnce() -> StoreTime) -> bool {
        match (caller, &self.0) {
            (Caller::Known(grant), Some(token_file)) => token_file.grants().has(grant) && !grant.has_expired(now),
            _ => true,
        }
    }

    /// Waits until [`Self::still_knows`] is false: the caller's token was removed or expired.
    pub(crate) async fn until_refused(&self, caller: &Caller, clock: &dyn Clock, now: impl Fn() -> StoreTime) {
        let (Caller::Known(grant), Some(token_file)) = (caller, &self.0) else {
            return std::future::pending().await;
        };
        // Subscribed before the first check, so that no reload is missed.
        let mut reloads = token_file.reloads.subscribe();
        while self.still_knows(caller, &now) {
            let expiry = async {
                match grant.expires {
                    Some(expires) => clock.sleep(expires.since(now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender lives as long as the guard.
                _ = reloads.changed() => {}
                () = expiry => {}
            }
        }
    }

    /// The token of the file that a request carries, even an expired one. It verifies no signature, so that the rate limit
    /// applies before that cost.
    pub(crate) fn known(&self, headers: &HeaderMap) -> Option<Arc<Grant>> {
        let token_file = self.0.as_ref()?;
        let shown = bearer(headers).ok().filter(|shown| is_ours(shown))?;
        let grants = token_file.grants.read().unwrap_or_else(PoisonError::into_inner);
        grants.of(&Hash::of(shown)).map(Arc::clone)
    }

    /// Authenticates and authorizes a request. `known` is the result of [`Guard::known`].
    ///
    /// # Errors
    /// The refusal, naming what the caller lacks.
    pub(crate) fn check(
        &self,
        rule: &Rule,
        known: Option<Arc<Grant>>,
        context: &RequestContext<'_>,
    ) -> Result<Caller, Refusal> {
        match known {
            _ if rule.open => Ok(self.visitor(known, context)),
            Some(grant) => token_caller(rule, grant, context),
            None if self.asks() => unknown_caller(rule, context),
            None => anonymous_caller(rule, context),
        }
    }

    /// The caller on a route that is open.
    fn visitor(&self, known: Option<Arc<Grant>>, context: &RequestContext<'_>) -> Caller {
        match known {
            Some(grant) if !grant.has_expired(context.now) => Caller::Known(grant),
            _ if self.asks() => Caller::Stranger,
            _ => Caller::Anyone,
        }
    }
}

/// The parts of a request that admission looks at.
pub(crate) struct RequestContext<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) uri: &'a Uri,
    pub(crate) jwt: Option<&'a Verifier>,
    pub(crate) now: &'a dyn Fn() -> StoreTime,
}

/// The token file, reloaded while the daemon runs.
#[derive(Debug)]
pub(crate) struct TokenFile {
    file: PathBuf,
    grants: RwLock<Arc<Grants>>,
    /// Marked after the tokens were replaced.
    reloads: watch::Sender<()>,
    /// Held while the file is read. Requests never wait for it.
    refreshing: Mutex<()>,
    last_read: Mutex<LastRead>,
}

/// The file as it was last read.
#[derive(Debug)]
struct LastRead {
    bytes: Vec<u8>,
    trouble: Option<String>,
}

impl TokenFile {
    pub(super) fn new(file: PathBuf) -> Result<Self> {
        let bytes = file::bytes(&file)?;
        let (_, grants) = file::parse(&file, &bytes)?;
        let grants = Grants::new(grants, &Grants::default());
        meters::tokens(grants.len());
        meters::stale(meters::TOKENS_FILE, false);
        let last_read = Mutex::new(LastRead { bytes, trouble: None });
        let grants = RwLock::new(Arc::new(grants));
        Ok(Self {
            file,
            grants,
            reloads: watch::Sender::default(),
            refreshing: Mutex::new(()),
            last_read,
        })
    }

    /// The number of tokens, and why the current file is not in use, if it is not.
    pub(crate) fn status(&self) -> (usize, Option<String>) {
        let trouble = self
            .last_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .trouble
            .clone();
        (self.grants().len(), trouble)
    }

    /// Reloads the file if it changed. Blocks: the file may be on a network disk.
    ///
    /// # Errors
    /// `Misconfigured` when the file is invalid; the tokens do not change.
    pub(crate) fn refresh(&self) -> Result<()> {
        // One reload at a time, from reading to replacing: an older read that finishes last would restore removed tokens.
        let _turn = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file::bytes(&self.file);
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = read.and_then(|bytes| {
            if bytes == last_read.bytes {
                return Ok(None);
            }
            let (_, grants) = file::parse(&self.file, &bytes)?;
            Ok(Some((bytes, grants)))
        });
        match changed {
            Ok(None) => last_read.trouble = None,
            Ok(Some((bytes, grants))) => {
                let grants = Grants::new(grants, &self.grants());
                tracing::info!(tokens = grants.len(), "token file reloaded");
                meters::tokens(grants.len());
                *self.grants.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(grants);
                self.reloads.send_replace(());
                *last_read = LastRead { bytes, trouble: None };
            }
            Err(error) => {
                let trouble = error.chain();
                if last_read.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(error = trouble, "token file not reloaded: the old tokens stay valid");
                }
                last_read.trouble = Some(trouble);
                meters::stale(meters::TOKENS_FILE, true);
                return Err(error);
            }
        }
        meters::stale(meters::TOKENS_FILE, false);
        Ok(())
    }

    fn grants(&self) -> Arc<Grants> {
        Arc::clone(&self.grants.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A caller with a token of the file.
fn token_caller(rule: &Rule, grant: Arc<Grant>, context: &RequestContext<'_>) -> Result<Caller, Refusal> {
    if grant.has_expired(context.now) {
        return Err(Refusal::expired(&grant));
    }
    if rule.provider && context.jwt.is_some() {
        return Err(Refusal::for_providers(Some(&grant)));
    }
    permits(rule, &grant, context.uri.path())?;
    let operates = rule.any_of.has(Scope::Operate) && grant.scopes.has(Scope::Operate);
    if !operates && is_for_providers(rule, context) {
        return Err(Refusal::for_providers(Some(&grant)));
    }
    Ok(Caller::Known(grant))
}

/// A caller without a token of the file, where one is required.
fn unknown_caller(rule: &Rule, context: &RequestContext<'_>) -> Result<Caller, Refusal> {
    let shown = bearer(context.headers);
    let jwt = context
        .jwt
        .filter(|_| !shown.as_ref().is_ok_and(|shown| is_ours(shown)));
    if let Some(jwt) = jwt
        && rule.provider
    {
        return provider(jwt, context);
    }
    let shown = shown.map_err(|refused| match refused {
        TokenError::Missing => Refusal::missing(),
        _ => Refusal::unknown(),
    })?;
    Err(match jwt.map(|jwt| jwt.verify(shown, (context.now)())) {
        Some(Ok(caller)) => Refusal::provider(&caller.provider),
        Some(Err(_)) | None => Refusal::unknown(),
    })
}

/// A caller of a daemon without a token file.
fn anonymous_caller(rule: &Rule, context: &RequestContext<'_>) -> Result<Caller, Refusal> {
    let Some(jwt) = context.jwt else {
        return Ok(Caller::Anyone);
    };
    if rule.provider {
        return provider(jwt, context);
    }
    // A proxy that forwards providers' tokens must not turn providers into operators.
    if rule.changes()
        && let Ok(shown) = bearer(context.headers)
        && let Ok(caller) = jwt.verify(shown, (context.now)())
    {
        return Err(Refusal::provider(&caller.provider));
    }
    if !rule.any_of.has(Scope::Operate) && is_for_providers(rule, context) {
        return Err(Refusal::for_providers(None));
    }
    Ok(Caller::Anyone)
}

/// A provider on its own routes. Its token is verified here and not in the handler, so that an unknown caller takes no permit
/// and no body memory.
fn provider(jwt: &Verifier, context: &RequestContext<'_>) -> Result<Caller, Refusal> {
    let shown = bearer(context.headers).and_then(|shown| jwt.verify(shown, (context.now)()));
    let caller = shown.map_err(|refused| Refusal::token(&refused))?;
    Ok(Caller::Provider(Arc::new(caller)))
}

/// Whether a request joins, beats or leaves in a roster's group: only the provider itself may, once keys are configured.
fn is_for_providers(rule: &Rule, context: &RequestContext<'_>) -> bool {
    context.jwt.is_some()
        && rule.lives()
        && Group::new(&*named(context.uri.path())).is_ok_and(|group| roster_of(&group).is_some())
}

fn permits(rule: &Rule, grant: &Arc<Grant>, path: &str) -> Result<(), Refusal> {
    if !grant.scopes.has_any(rule.any_of) {
        return Err(Refusal::scope(grant, rule.any_of));
    }
    if grant.only.is_none() {
        return Ok(());
    }
    if rule.everywhere {
        return Err(Refusal::everywhere(grant));
    }
    let roster = rule.resource == Resource::Roster;
    if rule.resource == Resource::Daemon {
        return Ok(());
    }
    let name = named(path);
    let fits = if roster {
        RosterName::new(&*name).is_ok_and(|roster| grant.is_for_roster(&roster))
    } else {
        grant.is_for(&name)
    };
    if fits {
        Ok(())
    } else {
        Err(Refusal::place(grant, roster, &name))
    }
}

/// The group or roster in a path, decoded as the handler decodes it.
fn named(path: &str) -> Cow<'_, str> {
    // "", "v1", "groups" or "rosters", and then the name.
    decoded(path.split('/').nth(3).unwrap_or(""))
}

fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return segment.into();
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let escaped = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        (bytes, rest) = match escaped {
            Some(byte) if first == b'%' => (push(bytes, byte), &after[2..]),
            _ => (push(bytes, first), after),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

fn push(mut bytes: Vec<u8>, byte: u8) -> Vec<u8> {
    bytes.push(byte);
    bytes
}
