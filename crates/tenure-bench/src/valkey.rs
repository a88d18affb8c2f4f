//! A Valkey server, and its own statistics.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tenure_testkit::resp::{Client, Reply};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Availability, have};
use tokio::process::Command;

/// The server.
pub struct ValkeyServer {
    server: Server,
}

/// The resources that the server has used so far.
#[derive(Debug, Clone, Copy)]
pub struct ServerUsage {
    /// CPU seconds, user and system.
    pub cpu: f64,
    /// Bytes of data and overhead, as the server counts them.
    pub memory: f64,
}

impl ValkeyServer {
    /// Starts a server without persistence that logs every command longer than a millisecond.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn start() -> Result<Self> {
        let settings = ["--slowlog-log-slower-than", "1000", "--slowlog-max-len", "10000"];
        let server = Server::with(Flavour::Valkey, &settings).context("valkey-server is not installed")?;
        Ok(Self { server })
    }

    /// The URL for stores.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Opens a blocking client.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub fn client(&self) -> Result<Client> {
        self.server.client()
    }

    /// Reads the resources used so far.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn used(&self) -> Result<ServerUsage> {
        let mut client = self.client()?;
        let info = format!(
            "{}{}",
            client.call(&["INFO", "cpu"])?.text(),
            client.call(&["INFO", "memory"])?.text()
        );
        let field = |name: &str| -> Result<f64> {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.with_context(|| format!("no {name} in INFO"))?
                .trim()
                .parse()
                .context("a number in INFO")
        };
        Ok(ServerUsage {
            cpu: field("used_cpu_user")? + field("used_cpu_sys")?,
            memory: field("used_memory")?,
        })
    }

    /// Clears the log of slow commands.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn forget_slow(&self) -> Result<()> {
        self.client()?.call(&["SLOWLOG", "RESET"])?;
        Ok(())
    }

    /// The longest command since then: its time in the server in ms, and its text. That bounds how long a PING waited
    /// because of it, without scheduler delays between commands (but with those during one). 1 ms if no command took
    /// longer.
    ///
    /// # Errors
    /// If it does not answer.
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 microseconds")]
    pub fn slowest(&self) -> Result<(f64, String)> {
        let reply = self.client()?.call(&["SLOWLOG", "GET", "-1"])?;
        let took = |entry: &&Reply| entry.items().get(2).and_then(Reply::int).unwrap_or(0);
        let slowest = reply.items().iter().max_by_key(took);
        let micros = slowest.as_ref().map_or(1000, took);
        let mut words = slowest
            .and_then(|entry| entry.items().get(3))
            .map_or(Vec::new(), Reply::texts);
        words.truncate(4);
        Ok((micros as f64 / 1000.0, words.join(" ")))
    }

    /// The size in bytes of every key with this prefix.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn key_sizes(&self, prefix: &str) -> Result<Vec<(String, i64)>> {
        let mut client = self.client()?;
        let pattern = format!("{prefix}*");
        let mut keys = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let page = client.call(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"])?;
            let [next, found] = page.items() else {
                bail!("SCAN was answered with {page:?}")
            };
            keys.extend(found.texts());
            cursor = next.text();
            if cursor == "0" {
                break;
            }
        }
        let mut sizes = Vec::new();
        for key in keys {
            let reply = client.call(&["MEMORY", "USAGE", &key, "SAMPLES", "1000"])?;
            sizes.push((key, reply.int().unwrap_or(0)));
        }
        sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Ok(sizes)
    }

    /// Sends many commands in a pipeline and reads all replies.
    ///
    /// # Errors
    /// If a command is refused.
    pub fn pipeline(client: &mut Client, commands: &[Vec<String>]) -> Result<()> {
        for command in commands {
            client.send(command)?;
        }
        for _ in commands {
            if let Reply::Error(error) = client.receive()? {
                bail!("the server refused a command: {error}");
            }
        }
        Ok(())
    }
}

/// The server's own load generator.
#[derive(Debug, Clone)]
pub struct RedisBenchmark(PathBuf);

impl RedisBenchmark {
    /// Finds the program.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn find() -> Result<Self> {
        match have("redis-benchmark") {
            Availability::Found(file) => Ok(Self(file)),
            Availability::Missing { .. } => bail!("redis-benchmark is not installed; it is in the package redis-tools"),
        }
    }

    /// Runs `SET key:<random> v EX 60` for `count` times over `keys` keys, 64 in a pipeline, on 50 connections (its
    /// default). Returns the commands per second.
    ///
    /// # Errors
    /// If it fails or takes more than a minute.
    pub async fn set_ex(&self, addr: SocketAddr, count: usize, keys: usize) -> Result<f64> {
        let mut command = Command::new(&self.0);
        command.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string(), "--csv"]);
        command.args(["-P", "64", "-n", &count.to_string(), "-r", &keys.to_string()]);
        command.args(["SET", "key:__rand_int__", "v", "EX", "60"]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
        let output = output.context("redis-benchmark took more than a minute")??;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "redis-benchmark failed: {text}");
        // The line is "test","rps",…; the same for the command, which may not contain a comma.
        let line = text
            .lines()
            .rfind(|line| line.contains("SET"))
            .context("no result of redis-benchmark")?;
        let rate = line
            .split(',')
            .nth(1)
            .context("no rate in the result of redis-benchmark")?;
        rate.trim_matches('"').parse().context("the rate of redis-benchmark")
    }
}
