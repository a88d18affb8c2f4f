//! Scripts and how they are called.
//!
//! Every script follows one contract, whoever wrote it. `ARGV[1]` is a nonce and `ARGV[2]` the not-after time in µs (or
//! `0`); the reply is an array whose first element is the nonce, whose second is the store's time in µs, and whose third
//! is `ok`, or `late` when the script refused because the time was past its not-after (it wrote nothing then).
//! Everything after that is the script's own.

use redis::Cmd;
use tenure_core::store::Call;
use tenure_core::time::StoreTime;

/// A Lua script: its text and the hash by which a server knows it.
#[derive(Debug, Clone)]
pub struct Script {
    name: &'static str,
    text: String,
    hash: String,
}

impl Script {
    /// Puts a script together from parts, in order.
    #[must_use]
    pub fn new(name: &'static str, parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { name, text, hash }
    }

    /// What it is called in logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Whether a call carries a not-after time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// A late effect is harmless: reads, and beats, which extend only what is alive.
    Harmless,
    /// The call must not take effect after its caller gave up, nor after the caller's own not-after time.
    Refused(Call),
}

/// One call of a script: its keys and its own arguments.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) lateness: Lateness,
}

impl Invocation {
    /// A call over these keys.
    #[must_use]
    pub fn new(keys: Vec<String>, lateness: Lateness) -> Self {
        Self {
            keys: keys.into_iter().map(String::into_bytes).collect(),
            args: Vec::new(),
            lateness,
        }
    }

    /// Adds keys that need not be text: those of other programs.
    #[must_use]
    pub fn foreign_keys(mut self, keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.keys.extend(keys);
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.args.push(arg.as_ref().to_vec());
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    /// Adds many arguments.
    #[must_use]
    pub fn args<A: AsRef<[u8]>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_vec()));
        self
    }

    /// The command: `EVALSHA`, or `EVAL` when the server has to be told the text.
    pub(crate) fn command(&self, script: &Script, with_text: bool, nonce: &str, not_after: Option<StoreTime>) -> Cmd {
        let mut cmd = if with_text {
            redis::cmd("EVAL")
        } else {
            redis::cmd("EVALSHA")
        };
        cmd.arg(if with_text { &script.text } else { &script.hash });
        cmd.arg(self.keys.len());
        for key in &self.keys {
            cmd.arg(key);
        }
        cmd.arg(nonce).arg(not_after.map_or(0, StoreTime::micros));
        for arg in &self.args {
            cmd.arg(arg.as_slice());
        }
        cmd
    }
}
