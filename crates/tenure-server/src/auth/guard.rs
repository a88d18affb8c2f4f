//! The check of every request.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::http::{HeaderMap, Uri};
use tenure_core::error::Result;
use tenure_core::id::{Group, RosterName};
use tenure_core::roster::roster_of;
use tenure_core::time::StoreTime;

use super::caller::Caller;
use super::file;
use super::grant::{Grant, Grants};
use super::refusal::Refusal;
use super::rule::{Place, Rule};
use super::scope::Scope;
use super::secret::{Hash, is_ours};
use crate::jwt::{Refused, Verifier, bearer};
use crate::meters;

/// The tokens that this daemon knows, if it asks for one.
#[derive(Debug, Default)]
pub(crate) struct Guard(Option<Arc<Keeper>>);

impl Guard {
    /// Reads the file, if there is to be one.
    ///
    /// # Errors
    /// `Misconfigured`, naming the file and what is wrong with it.
    pub(crate) fn new(file: Option<PathBuf>) -> Result<Self> {
        let keeper = file.map(Keeper::new).transpose()?;
        Ok(Self(keeper.map(Arc::new)))
    }

    /// Whether a token is asked for.
    pub(crate) fn asks(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.0.as_ref()
    }

    /// Whether a caller of a while ago would still be let in.
    pub(crate) fn still_knows(&self, caller: &Caller, now: impl FnOnce() -> StoreTime) -> bool {
        match (caller, &self.0) {
            (Caller::Known(grant), Some(keeper)) => keeper.grants().has(grant) && !grant.has_expired(now),
            _ => true,
        }
    }

    /// The token of the file that a request shows, also one that has expired. It looks at no signature, so that whoever asks
    /// too often can be told so before anything dear is done.
    pub(crate) fn known(&self, headers: &HeaderMap) -> Option<Arc<Grant>> {
        let keeper = self.0.as_ref()?;
        let shown = bearer(headers).ok().filter(|shown| is_ours(shown))?;
        let grants = keeper.grants.read().unwrap_or_else(PoisonError::into_inner);
        grants.of(&Hash::of(shown)).map(Arc::clone)
    }

    /// Finds out who is calling, and whether they may. `known` is what [`Guard::known`] found.
    ///
    /// # Errors
    /// The refusal, with what is lacking.
    pub(crate) fn check(&self, rule: &Rule, known: Option<Arc<Grant>>, ask: &Ask<'_>) -> Result<Caller, Refusal> {
        match known {
            _ if rule.open => Ok(self.visitor(known, ask)),
            Some(grant) => known_one(rule, grant, ask),
            None if self.asks() => stranger(rule, ask),
            None => anyone(rule, ask),
        }
    }

    /// Who is calling where nobody is refused.
    fn visitor(&self, known: Option<Arc<Grant>>, ask: &Ask<'_>) -> Caller {
        match known {
            Some(grant) if !grant.has_expired(ask.now) => Caller::Known(grant),
            _ if self.asks() => Caller::Stranger,
            _ => Caller::Anyone,
        }
    }
}

/// What is known of a request before it is let in.
pub(crate) struct Ask<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) uri: &'a Uri,
    pub(crate) jwt: Option<&'a Verifier>,
    pub(crate) now: &'a dyn Fn() -> StoreTime,
}

/// The tokens, and the file they are from.
#[derive(Debug)]
pub(crate) struct Keeper {
    file: PathBuf,
    grants: RwLock<Arc<Grants>>,
    /// Held while the file is read. Whoever answers requests never waits for it.
    refreshing: Mutex<()>,
    seen: Mutex<Seen>,
}

/// What was in the file when it was last looked at.
#[derive(Debug)]
struct Seen {
    bytes: Vec<u8>,
    trouble: Option<String>,
}

impl Keeper {
    pub(super) fn new(file: PathBuf) -> Result<Self> {
        let bytes = file::bytes(&file)?;
        let (_, grants) = file::parse(&file, &bytes)?;
        let grants = Grants::new(grants, &Grants::default());
        meters::tokens(grants.len());
        meters::stale(meters::TOKENS_FILE, false);
        let seen = Mutex::new(Seen { bytes, trouble: None });
        let grants = RwLock::new(Arc::new(grants));
        Ok(Self {
            file,
            grants,
            refreshing: Mutex::new(()),
            seen,
        })
    }

    /// How many tokens there are, and why what is in the file now is not used, if it is not.
    pub(crate) fn status(&self) -> (usize, Option<String>) {
        let trouble = self.seen.lock().unwrap_or_else(PoisonError::into_inner).trouble.clone();
        (self.grants().len(), trouble)
    }

    /// Looks at the file, and takes what is new in it. Blocks: files may lie on a disk that is away.
    ///
    /// # Errors
    /// `Misconfigured` when it cannot be used: the tokens stay as they were.
    pub(crate) fn refresh(&self) -> Result<()> {
        // One at a time, from reading to taking over: else what was read first could be put in place last, and bring back
        // tokens that were taken out.
        let _turn = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file::bytes(&self.file);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = read.and_then(|bytes| {
            if bytes == seen.bytes {
                return Ok(None);
            }
            let (_, grants) = file::parse(&self.file, &bytes)?;
            Ok(Some((bytes, grants)))
        });
        match changed {
            Ok(None) => seen.trouble = None,
            Ok(Some((bytes, grants))) => {
                let grants = Grants::new(grants, &self.grants());
                tracing::info!(tokens = grants.len(), "the tokens have changed");
                meters::tokens(grants.len());
                *self.grants.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(grants);
                *seen = Seen { bytes, trouble: None };
            }
            Err(error) => {
                let trouble = error.chain();
                if seen.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(error = trouble, "the tokens stay as they were");
                }
                seen.trouble = Some(trouble);
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

/// Somebody with a token of the file.
fn known_one(rule: &Rule, grant: Arc<Grant>, ask: &Ask<'_>) -> Result<Caller, Refusal> {
    if grant.has_expired(ask.now) {
        return Err(Refusal::expired(&grant));
    }
    if rule.provider && ask.jwt.is_some() {
        return Err(Refusal::for_providers(Some(&grant)));
    }
    permits(rule, &grant, ask.uri.path())?;
    let operates = rule.any_of.has(Scope::Operate) && grant.scopes.has(Scope::Operate);
    if !operates && is_for_providers(rule, ask) {
        return Err(Refusal::for_providers(Some(&grant)));
    }
    Ok(Caller::Known(grant))
}

/// Somebody without a token of the file, where one is asked for.
fn stranger(rule: &Rule, ask: &Ask<'_>) -> Result<Caller, Refusal> {
    let shown = bearer(ask.headers);
    let jwt = ask.jwt.filter(|_| !shown.as_ref().is_ok_and(|shown| is_ours(shown)));
    if let Some(jwt) = jwt
        && rule.provider
    {
        return provider(jwt, ask);
    }
    let shown = shown.map_err(|refused| match refused {
        Refused::Missing => Refusal::missing(),
        _ => Refusal::unknown(),
    })?;
    Err(match jwt.map(|jwt| jwt.verify(shown, (ask.now)())) {
        Some(Ok(caller)) => Refusal::provider(&caller.provider),
        Some(Err(_)) | None => Refusal::unknown(),
    })
}

/// Somebody, where no token of the file is asked for.
fn anyone(rule: &Rule, ask: &Ask<'_>) -> Result<Caller, Refusal> {
    let Some(jwt) = ask.jwt else {
        return Ok(Caller::Anyone);
    };
    if rule.provider {
        return provider(jwt, ask);
    }
    // A proxy that passes on the tokens of providers must not make operators of them.
    if rule.changes()
        && let Ok(shown) = bearer(ask.headers)
        && let Ok(caller) = jwt.verify(shown, (ask.now)())
    {
        return Err(Refusal::provider(&caller.provider));
    }
    if !rule.any_of.has(Scope::Operate) && is_for_providers(rule, ask) {
        return Err(Refusal::for_providers(None));
    }
    Ok(Caller::Anyone)
}

/// A provider at its own routes. Its token is looked at here and not in the handler, which reads the body first: a stranger
/// is to take no place among the requests at once.
fn provider(jwt: &Verifier, ask: &Ask<'_>) -> Result<Caller, Refusal> {
    let shown = bearer(ask.headers).and_then(|shown| jwt.verify(shown, (ask.now)()));
    let caller = shown.map_err(|refused| Refusal::token(&refused))?;
    Ok(Caller::Provider(Arc::new(caller)))
}

/// Whether it is what providers do in their own names, done to the group that their roster is.
fn is_for_providers(rule: &Rule, ask: &Ask<'_>) -> bool {
    ask.jwt.is_some()
        && rule.lives()
        && Group::new(&*named(ask.uri.path())).is_ok_and(|group| roster_of(&group).is_some())
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
    let roster = rule.place == Place::Roster;
    if rule.place == Place::Nowhere {
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

/// The name of the group or roster that a path is about, as its handler will read it.
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
