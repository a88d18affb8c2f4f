//! The token file.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, RosterName};
use tenure_core::time::StoreTime;
use toml::{Table, Value};

use super::grant::{Grant, NamePatterns, Restriction};
use super::scope::{Scope, Scopes};
use super::secret::{Hash, is_ours};

/// The largest token file, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// The most tokens of a file.
const MAX_TOKENS: usize = 10_000;
/// The longest name of a token.
const MAX_NAME: usize = 100;

/// One token of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// Its name in the audit log and in errors: letters, digits and `._:-`, at most 100.
    pub name: String,
    /// The SHA-256 of the secret, in 64 hexadecimal digits.
    pub sha256: String,
    /// Its scopes.
    pub scopes: Scopes,
    /// The groups it is valid for: names, or prefixes followed by `*`.
    pub groups: Vec<String>,
    /// The rosters it is valid for, likewise. With neither groups nor rosters it is valid everywhere.
    pub rosters: Vec<String>,
    /// When it expires.
    pub expires: Option<StoreTime>,
}

impl TokenEntry {
    /// Validates the entry.
    ///
    /// # Errors
    /// `Invalid`, naming the field and what is expected.
    pub fn check(&self) -> Result<()> {
        self.grant().map(drop).map_err(Error::invalid)
    }

    fn grant(&self) -> Result<Grant, String> {
        check_name(&self.name)?;
        let Some(hash) = Hash::parse(&self.sha256) else {
            let what = if is_ours(&self.sha256) {
                "the sha256 is the secret itself; write its hash"
            } else {
                "the sha256 is not 64 hexadecimal digits"
            };
            return Err(what.to_owned());
        };
        if self.scopes.is_empty() {
            return Err("it has no scopes; name some of read, beat, write, operate".to_owned());
        }
        let groups = names("groups", &self.groups, |name| Group::new(name).map(drop))?;
        let rosters = names("rosters", &self.rosters, |name| RosterName::new(name).map(drop))?;
        let everywhere = groups.0.is_empty() && rosters.0.is_empty();
        Ok(Grant {
            name: self.name.clone(),
            hash,
            scopes: self.scopes,
            only: (!everywhere).then_some(Restriction { groups, rosters }),
            expires: self.expires,
            due: AtomicU64::new(0),
        })
    }
}

impl fmt::Display for TokenEntry {
    /// As TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: &[String]| {
            let quoted: Vec<_> = items.iter().map(|item| format!("\"{item}\"")).collect();
            format!("[{}]", quoted.join(", "))
        };
        let scopes: Vec<_> = self.scopes.iter().map(|scope| scope.to_string()).collect();
        writeln!(f, "[[token]]")?;
        writeln!(f, "name = \"{}\"", self.name)?;
        writeln!(f, "sha256 = \"{}\"", self.sha256)?;
        writeln!(f, "scopes = {}", list(&scopes))?;
        if !self.groups.is_empty() {
            writeln!(f, "groups = {}", list(&self.groups))?;
        }
        if !self.rosters.is_empty() {
            writeln!(f, "rosters = {}", list(&self.rosters))?;
        }
        if let Some(expires) = self.expires {
            writeln!(f, "expires = {expires}")?;
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
        return Err(format!(
            "the name is not 1 to {MAX_NAME} letters, digits, `.`, `_`, `:` and `-`"
        ));
    }
    if is_ours(name) {
        return Err("the name is a secret".to_owned());
    }
    Ok(())
}

fn names(field: &str, given: &[String], check: impl Fn(&str) -> Result<()>) -> Result<NamePatterns, String> {
    for (n, name) in given.iter().enumerate() {
        let beginning = name.strip_suffix('*').unwrap_or(name);
        // A lone `*` matches every name.
        if !(beginning.is_empty() && name == "*") && check(beginning).is_err() {
            return Err(format!(
                "in {field}, number {} is neither a name nor a prefix with `*`",
                n + 1
            ));
        }
    }
    Ok(NamePatterns(given.to_vec()))
}

/// Reads a token file: one TOML table `[[token]]` per token, with `name`, `sha256`, `scopes`, and optionally `groups`,
/// `rosters` and `expires` (RFC 3339). A file without tokens is valid and admits no caller.
///
/// # Errors
/// `Misconfigured`, naming the file and the token. It quotes only token names: the file may contain secrets by mistake.
pub fn read(path: &Path) -> Result<Vec<TokenEntry>> {
    parse(path, &bytes(path)?).map(|(entries, _)| entries)
}

pub(super) fn bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| refuse(path, "cannot be read").because(error))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(refuse(path, "is larger than 4 MiB"));
    }
    Ok(bytes)
}

/// Parses the bytes of a token file.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<TokenEntry>, Vec<Grant>)> {
    let text = std::str::from_utf8(bytes).map_err(|_| refuse(path, "is not text"))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        refuse(path, &format!("is not TOML: see line {line}"))
    })?;
    let tokens = tokens(table).map_err(|why| refuse(path, &why))?;
    if tokens.len() > MAX_TOKENS {
        return Err(refuse(path, &format!("has more than {MAX_TOKENS} tokens")));
    }
    let (mut entries, mut grants) = (Vec::new(), Vec::new());
    let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    for (n, value) in tokens.into_iter().enumerate() {
        let read = entry(value).and_then(|entry| entry.grant().map(|grant| (entry, grant)));
        let (entry, grant) = read.map_err(|why| refuse(path, &format!("cannot be used: in token {}, {why}", n + 1)))?;
        if !names.insert(entry.name.clone()) {
            return Err(refuse(path, &format!("has two tokens with the name {}", entry.name)));
        }
        if !hashes.insert(entry.sha256.to_lowercase()) {
            return Err(refuse(path, &format!("has the hash of {} twice", entry.name)));
        }
        entries.push(entry);
        grants.push(grant);
    }
    Ok((entries, grants))
}

fn refuse(path: &Path, why: &str) -> Error {
    Error::new(
        ErrorKind::Misconfigured,
        format!("the token file {} {why}", path.display()),
    )
}

fn tokens(mut table: Table) -> Result<Vec<Value>, String> {
    let tokens = table.remove("token");
    if !table.is_empty() {
        return Err("has an unknown key; expected only [[token]] tables".to_owned());
    }
    match tokens {
        None => Ok(Vec::new()),
        Some(Value::Array(tokens)) => Ok(tokens),
        Some(_) => Err("has a `token` that is not a list; write [[token]]".to_owned()),
    }
}

fn entry(value: Value) -> Result<TokenEntry, String> {
    let Value::Table(mut table) = value else {
        return Err("it is not a table".to_owned());
    };
    let mut text = |field: &str| match table.remove(field) {
        None => Err(format!("the {field} is missing")),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("the {field} is not text")),
    };
    let (name, sha256) = (text("name")?, text("sha256")?);
    let scopes = list(table.remove("scopes"), "scopes")?;
    let scopes: Result<Vec<Scope>, String> = scopes.iter().map(|scope| scope.parse()).collect();
    let expires = match table.remove("expires") {
        None => None,
        Some(Value::Datetime(at)) => Some(at.to_string()),
        Some(Value::String(at)) => Some(at),
        Some(_) => return Err("the expires is not a time".to_owned()),
    };
    let expires = expires.map(|at| at.parse::<StoreTime>());
    let expires = expires
        .transpose()
        .map_err(|_| "the expires is not an RFC 3339 time like 2027-01-01T00:00:00Z".to_owned())?;
    let entry = TokenEntry {
        name,
        sha256,
        scopes: scopes?.into_iter().collect(),
        groups: list(table.remove("groups"), "groups")?,
        rosters: list(table.remove("rosters"), "rosters")?,
        expires,
    };
    if !table.is_empty() {
        let fields = "name, sha256, scopes, groups, rosters and expires";
        return Err(format!("it has an unknown field; known are {fields}"));
    }
    Ok(entry)
}

/// An empty list is rejected: some readers would take it for "everywhere", others for "nowhere".
fn list(value: Option<Value>, field: &str) -> Result<Vec<String>, String> {
    let items = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) if items.is_empty() => {
            return Err(format!(
                "the {field} are an empty list; name some, or leave the field out"
            ));
        }
        Some(Value::Array(items)) => items,
        Some(_) => return Err(format!("the {field} are not a list")),
    };
    let text = |item| match item {
        Value::String(text) => Ok(text),
        _ => Err(format!("the {field} contain a value that is not text")),
    };
    items.into_iter().map(text).collect()
}
