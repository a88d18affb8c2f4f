//! The check of every request.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::http::{HeaderMap, Uri};
use tenure::wire::Code;
use tenure_core::error::Result;
use tenure_core::time::StoreTime;

use super::caller::Caller;
use super::file;
use super::grant::{Grant, Grants};
use super::rule::{Place, Rule};
use super::scope::Scopes;
use super::secret::{Hash, is_ours};
use crate::jwt::{Refused, Verifier, bearer};
use crate::meters;
use crate::reply::Failure;

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

    /// Finds out who is calling, and whether they may.
    ///
    /// # Errors
    /// The refusal, with what is lacking.
    pub(crate) fn check(&self, rule: &Rule, ask: &Ask<'_>) -> Result<Caller, Refusal> {
        let Some(keeper) = &self.0 else {
            return Ok(Caller::Anyone);
        };
        let found = keeper.find(rule, ask);
        match found {
            Err(_) if rule.open => Ok(Caller::Stranger),
            other => other,
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
    seen: Mutex<Seen>,
}

/// What was in the file when it was last looked at.
#[derive(Debug)]
struct Seen {
    bytes: Vec<u8>,
    trouble: Option<String>,
}

impl Keeper {
    fn new(file: PathBuf) -> Result<Self> {
        let bytes = file::bytes(&file)?;
        let (_, grants) = file::parse(&file, &bytes)?;
        let grants = Grants::new(grants, &Grants::default());
        meters::tokens(grants.len());
        meters::stale(meters::TOKENS_FILE, false);
        let seen = Mutex::new(Seen { bytes, trouble: None });
        let grants = RwLock::new(Arc::new(grants));
        Ok(Self { file, grants, seen })
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
        let read = file::bytes(&self.file);
        // One at a time: of two that read the file, the later one is to win.
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

    fn find(&self, rule: &Rule, ask: &Ask<'_>) -> Result<Caller, Refusal> {
        let shown = bearer(ask.headers);
        // The routes of providers look at their tokens themselves, and refuse in their own words.
        if rule.provider && ask.jwt.is_some() && !shown.as_ref().is_ok_and(|shown| is_ours(shown)) {
            return Ok(Caller::Provider);
        }
        let shown = shown.map_err(|refused| match refused {
            Refused::Missing => Refusal::missing(),
            _ => Refusal::unknown(),
        })?;
        if !is_ours(shown) {
            return Err(match ask.jwt.map(|jwt| jwt.verify(shown, (ask.now)())) {
                Some(Ok(caller)) => Refusal::provider(&caller.provider),
                Some(Err(_)) | None => Refusal::unknown(),
            });
        }
        let hash = Hash::of(shown);
        let known = self.grants.read().unwrap_or_else(PoisonError::into_inner);
        let grant = known.of(&hash).map(Arc::clone).ok_or_else(Refusal::unknown)?;
        drop(known);
        if grant.has_expired(ask.now) {
            return Err(Refusal::expired(&grant));
        }
        if rule.open {
            return Ok(Caller::Known(grant));
        }
        if rule.provider && ask.jwt.is_some() {
            return Err(Refusal::for_providers(&grant));
        }
        permits(rule, &grant, ask.uri.path())?;
        Ok(Caller::Known(grant))
    }
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
    // "", "v1", "groups" or "rosters", and then the name.
    let name = path.split('/').nth(3).unwrap_or("");
    let name = decoded(name);
    let fits = if roster {
        tenure_core::id::RosterName::new(&*name).is_ok_and(|roster| grant.is_for_roster(&roster))
    } else {
        grant.is_for(&name)
    };
    if fits {
        Ok(())
    } else {
        Err(Refusal::place(grant, roster, &name))
    }
}

/// A segment of a path as its handler will read it.
fn decoded(segment: &str) -> std::borrow::Cow<'_, str> {
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

/// Why somebody is not let in. Cheap to make: it says nothing until somebody wants to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    code: Code,
    /// Whose token it was, when it is known.
    who: Option<String>,
    detail: String,
    challenge: String,
}

impl Refusal {
    fn missing() -> Self {
        Self::unauthenticated(
            "this daemon asks who is calling: send `Authorization: Bearer <token>` (the `tenure` command: --token-file FILE or \
             TENURE_TOKEN_FILE)",
            "Bearer realm=\"tenure\"",
        )
    }

    pub(super) fn unknown() -> Self {
        Self::unauthenticated(
            "the token is not known here; was it taken out of the daemon's file, or is it another daemon's?",
            "Bearer realm=\"tenure\", error=\"invalid_token\"",
        )
    }

    fn unauthenticated(detail: &str, challenge: &str) -> Self {
        Self {
            code: Code::Unauthenticated,
            who: None,
            detail: detail.to_owned(),
            challenge: challenge.to_owned(),
        }
    }

    fn expired(grant: &Grant) -> Self {
        let mut refusal = Self::unknown();
        refusal.detail = format!("the token {} has expired; ask for a new one", grant.name);
        refusal.who = Some(grant.name.clone());
        refusal
    }

    fn provider(provider: &tenure_core::id::ProviderId) -> Self {
        Self {
            code: Code::NotForProviders,
            who: Some(format!("provider {provider}")),
            detail: format!(
                "the token is that of the provider {provider}, who may go online, go offline and be heard of, and nothing else"
            ),
            challenge: String::new(),
        }
    }

    fn for_providers(grant: &Grant) -> Self {
        let detail = "this daemon has keys for the tokens of providers, so only a provider's own token does here";
        Self::forbidden(grant, format!("the token {} does not do: {detail}", grant.name), "")
    }

    pub(super) fn scope(grant: &Grant, any_of: Scopes) -> Self {
        let needed: Vec<_> = any_of.iter().map(|scope| format!("`{scope}`")).collect();
        let needed = needed.join(" or ");
        let (name, has) = (&grant.name, grant.scopes);
        let detail = format!("the token {name} may not do this: it takes the scope {needed}, and the token has {has}");
        let scopes: Vec<_> = any_of.iter().map(|scope| scope.to_string()).collect();
        Self::forbidden(grant, detail, &format!(", scope=\"{}\"", scopes.join(" ")))
    }

    fn everywhere(grant: &Grant) -> Self {
        let name = &grant.name;
        let detail = format!("the token {name} is for some groups and rosters, and this is about all of them");
        Self::forbidden(grant, detail, "")
    }

    fn place(grant: &Grant, roster: bool, name: &str) -> Self {
        let kind = if roster { "roster" } else { "group" };
        let shown: String = name.chars().take(200).collect();
        let detail = format!("the token {} is not for the {kind} {shown:?}", grant.name);
        Self::forbidden(grant, detail, "")
    }

    fn forbidden(grant: &Grant, detail: String, more: &str) -> Self {
        Self {
            code: Code::Forbidden,
            who: Some(grant.name.clone()),
            detail,
            challenge: format!("Bearer realm=\"tenure\", error=\"insufficient_scope\"{more}"),
        }
    }

    /// Whose token it was.
    pub(crate) fn who(&self) -> Option<&str> {
        self.who.as_deref()
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    pub(crate) fn into_failure(self) -> Failure {
        let failure = Failure::new(self.code, self.detail);
        if self.challenge.is_empty() {
            return failure;
        }
        failure.with_challenge(&self.challenge)
    }
}
