//! An ingest gateway: devices connect to it, and it owns their keys in the registry for as long as they are connected.

use anyhow::Context;
use tenure::{Membership, Registry};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::Signal;

use super::{DEVICES, asked_to_leave};
use crate::exit::say;
use crate::output::line;

pub(super) async fn run(membership: Membership, mut term: Signal) -> anyhow::Result<()> {
    let devices = membership.registry(DEVICES)?;
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
    line(listener.local_addr()?)?;
    let stay = asked_to_leave(&membership, &mut term);
    tokio::pin!(stay);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted.context("no device can connect")?;
                tokio::spawn(with_device(devices.clone(), socket));
            }
            leave = &mut stay => {
                if leave {
                    membership.leave().await?;
                }
                return Ok(());
            }
        }
    }
}

async fn with_device(devices: Registry, socket: TcpStream) {
    if let Err(error) = serve(&devices, socket).await {
        say(format_args!("a device: {error:#}"));
    }
}

/// A device says its name, and is ours until its socket ends.
async fn serve(devices: &Registry, socket: TcpStream) -> anyhow::Result<()> {
    let mut socket = BufReader::new(socket);
    let mut name = String::new();
    socket.read_line(&mut name).await?;
    let name = name.trim();
    // The device is here now, whichever gateway owned it before.
    devices.claim(name).await?;
    socket.write_all(b"welcome\n").await?;
    while socket.read_line(&mut String::new()).await.is_ok_and(|read| read > 0) {}
    // It may be another's by now, and then this is refused.
    devices.release(name).await.ok();
    Ok(())
}
