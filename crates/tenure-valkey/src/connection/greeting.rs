//! The first exchange on a connection: log in, choose the database, and see that the server takes the connection.
//!
//! The client library would do the first two. But it drops the server's words, takes every refusal of `AUTH` for a wrong
//! password, and loses the reason of a server that replies and closes before it reads (too many clients, protected mode).

use redis::{Cmd, RedisConnectionInfo};
use tenure_core::error::Error;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use super::live::{self, Failure};
use super::wire::unsent;
use crate::classify::RefusalClass;

/// The longest reply: protected mode explains itself in 800 bytes.
const MAX_REPLY: u64 = 4096;

/// Sends what opens a connection, and reads the replies. Returns the settings of a connection that is open.
///
/// # Errors
/// The server's refusal by its class: `Denied`, `Misconfigured`, or `Unavailable`.
pub(super) async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    handshake: &RedisConnectionInfo,
    stream: &mut S,
) -> Result<RedisConnectionInfo, Error> {
    let cmds = commands(handshake);
    let packed: Vec<u8> = cmds.iter().flat_map(Cmd::get_packed_command).collect();
    // A server that has closed the connection may have given a reason, which is read below.
    let _ = async { stream.write_all(&packed).await.and(stream.flush().await) }.await;
    let mut replies = BufReader::new(stream);
    for _ in &cmds {
        match reply(&mut replies).await {
            Ok(()) => {}
            Err(Failure::Refused(class, words)) if !ends(handshake, class, &words) => {}
            Err(failure) => return Err(unsent(failure)),
        }
    }
    if !replies.buffer().is_empty() {
        return Err(unsent(Failure::Broken(
            "the server sent more replies than were asked for".to_owned(),
        )));
    }
    Ok(RedisConnectionInfo::default().set_skip_set_lib_name())
}

/// The commands. Without a login and a database, any command shows whether the server takes the connection.
fn commands(handshake: &RedisConnectionInfo) -> Vec<Cmd> {
    let mut cmds = Vec::new();
    if let Some(password) = handshake.password() {
        let mut auth = redis::cmd("AUTH");
        if let Some(user) = handshake.username() {
            auth.arg(user);
        }
        auth.arg(password);
        cmds.push(auth);
    }
    if handshake.db() != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(handshake.db());
        cmds.push(select);
    }
    if cmds.is_empty() {
        cmds.push(redis::cmd("PING"));
    }
    cmds
}

/// Whether a refusal ends the connection. That of `PING` does only when the server has closed the connection: what else it
/// refuses, the next command shows.
fn ends(handshake: &RedisConnectionInfo, class: RefusalClass, words: &str) -> bool {
    let is_ping = handshake.password().is_none() && handshake.db() == 0;
    !is_ping || class == RefusalClass::NoConnection || words.starts_with("DENIED")
}

/// Reads one status or error reply.
async fn reply<R: AsyncRead + Unpin>(replies: &mut BufReader<R>) -> Result<(), Failure> {
    let broken = |why: String| Failure::Broken(why);
    let mut line = Vec::new();
    let read = replies.take(MAX_REPLY).read_until(b'\n', &mut line).await;
    read.map_err(|error| broken(error.to_string()))?;
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(broken("the server closed the connection".to_owned()));
    };
    match line.split_first() {
        Some((b'+', _)) => Ok(()),
        Some((b'-', words)) => {
            let words = String::from_utf8_lossy(words);
            let (code, detail) = words.split_once(' ').unwrap_or((&words, ""));
            Err(live::refused(code, detail))
        }
        _ => Err(broken(
            "the server does not speak the protocol of Valkey and Redis".to_owned(),
        )),
    }
}
