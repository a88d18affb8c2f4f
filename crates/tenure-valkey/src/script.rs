//! Lua scripts and their invocation.
//!
//! All scripts follow one contract. `ARGV[1]` is a nonce, on a cluster with the tag of the node, and `ARGV[2]` the not-after time in µs, or `0`. The reply is
//! an array: the nonce, the store's time in µs, and `ok`, or `late` when the not-after time has passed (the script then
//! wrote nothing). The rest of the reply belongs to the script.

use std::sync::Arc;

use redis::Cmd;
use tenure_core::id::TenureId;
use tenure_core::store::Call;
use tenure_core::time::StoreTime;

/// A Lua script: its text and the hash under which a server caches it.
#[derive(Debug, Clone)]
pub struct Script {
    name: &'static str,
    text: String,
    hash: String,
}

impl Script {
    /// Concatenates the parts of a script.
    #[must_use]
    pub fn new(name: &'static str, parts: &[&str]) -> Self {
        let text = parts.concat();
        #[cfg(debug_assertions)]
        let text = crate::planted::alter(name, text);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { name, text, hash }
    }

    /// Its name in logs.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The full text.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Whether a call carries a not-after time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// A late effect is harmless: reads, and beats, which extend only live tenures.
    Harmless,
    /// The call must not take effect after its caller gave up, nor after the caller's own not-after time.
    Refused(Call),
}

/// Arguments in one buffer: a batch has hundreds, and one allocation per argument would double the cost of encoding.
#[derive(Debug, Clone, Default)]
struct Args {
    bytes: Vec<u8>,
    /// The end offset of each argument.
    ends: Vec<usize>,
}

impl Args {
    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
    }
}

/// One call of a script: its keys and arguments.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub(crate) keys: Vec<Vec<u8>>,
    args: Args,
    pub(crate) lateness: Lateness,
    /// Whether replicas must confirm it, if the store's URL asks for that.
    pub(crate) confirmed: bool,
    /// The tag of the keys that a primary of a cluster has for itself.
    pub(crate) tag: Option<Arc<str>>,
}

impl Invocation {
    /// A call with these keys.
    #[must_use]
    pub fn new(keys: Vec<String>, lateness: Lateness) -> Self {
        Self {
            keys: keys.into_iter().map(String::into_bytes).collect(),
            args: Args::default(),
            lateness,
            confirmed: false,
            tag: None,
        }
    }

    /// Names the keys that a primary of a cluster has for itself.
    #[must_use]
    pub(crate) fn tagged(mut self, tag: Option<Arc<str>>) -> Self {
        self.tag = tag;
        self
    }

    /// Requires confirmation by replicas, if the store's URL asks for that.
    #[must_use]
    pub(crate) fn confirmed(mut self) -> Self {
        self.confirmed = true;
        self
    }

    /// Adds keys of other programs, which need not be text.
    #[must_use]
    pub fn foreign_keys(mut self, keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.keys.extend(keys);
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.args.push(|bytes| bytes.extend_from_slice(arg.as_ref()));
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<A: AsRef<[u8]>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        for arg in args {
            self.args.push(|bytes| bytes.extend_from_slice(arg.as_ref()));
        }
        self
    }

    /// Adds tenure ids.
    #[must_use]
    pub(crate) fn tenures<'a>(mut self, tenures: impl ExactSizeIterator<Item = &'a TenureId>) -> Self {
        self.args.ends.reserve(tenures.len());
        for tenure in tenures {
            self.args.push(|bytes| {
                bytes.extend_from_slice(tenure.member().as_str().as_bytes());
                bytes.push(b'@');
                bytes.extend_from_slice(tenure.term().get().to_string().as_bytes());
            });
        }
        self
    }

    /// The command: `EVALSHA`, or `EVAL` when the server needs the text.
    pub(crate) fn command(&self, script: &Script, with_text: bool, nonce: &str, not_after: Option<StoreTime>) -> Cmd {
        let own = if with_text { script.text.len() } else { 64 };
        let (keys, arguments) = (self.keys.iter().map(Vec::len).sum::<usize>(), self.args.bytes.len());
        let mut cmd = Cmd::with_capacity(8 + self.keys.len() + self.args.ends.len(), own + 64 + keys + arguments);
        cmd.arg(if with_text { "EVAL" } else { "EVALSHA" });
        cmd.arg(if with_text { &script.text } else { &script.hash });
        cmd.arg(self.keys.len());
        for key in &self.keys {
            cmd.arg(key);
        }
        cmd.arg(nonce).arg(not_after.map_or(0, StoreTime::micros));
        for arg in self.args.iter() {
            cmd.arg(arg);
        }
        cmd
    }
}
