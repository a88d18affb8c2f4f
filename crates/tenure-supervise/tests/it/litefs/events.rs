//! An event stream controlled by a test.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The behaviour of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    Primary,
    Replica,
    /// Connections are closed.
    Nothing,
    /// Responds, but not like LiteFS.
    Garbage,
    /// Accepts connections and never responds.
    Silence,
}

/// The event server.
#[derive(Debug)]
pub(crate) struct Stream {
    addr: SocketAddr,
    says: watch::Sender<Says>,
}

impl Stream {
    pub(crate) async fn start(says: Says) -> Stream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (says, heard) = watch::channel(says);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, heard.clone()));
            }
        });
        Stream { addr, says }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.addr)
    }

    pub(crate) fn say(&self, says: Says) {
        self.says.send_replace(says);
    }
}

async fn serve(mut client: TcpStream, mut heard: watch::Receiver<Says>) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let read = client.read(&mut request).await?;
    assert!(request[..read].starts_with(b"GET /events HTTP/1.1\r\n"));
    let mut kind = "init";
    if *heard.borrow() != Says::Silence {
        client
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            .await?;
    }
    loop {
        let says = *heard.borrow_and_update();
        match says {
            Says::Nothing => return Ok(()),
            Says::Garbage => client.write_all(b"<html>\n").await?,
            Says::Silence => {}
            Says::Primary | Says::Replica => {
                let line = format!(
                    "{{\"type\":\"{kind}\",\"data\":{{\"isPrimary\":{}}}}}\n",
                    says == Says::Primary
                );
                client.write_all(line.as_bytes()).await?;
                client
                    .write_all(b"{\"type\":\"tx\",\"db\":\"db\",\"data\":{}}\n")
                    .await?;
                kind = "primaryChange";
            }
        }
        if heard.changed().await.is_err() {
            return Ok(());
        }
    }
}
