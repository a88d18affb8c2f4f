//! The daemon: Tenure over HTTP, for every language.
//!
//! ```no_run
//! # async fn run() -> tenure_core::Result<()> {
//! use tenure_core::{clock::SystemClock, memory::MemoryStore, store::StoreOptions};
//! use tenure_server::{Parts, Server, Settings};
//!
//! let clock = SystemClock::shared();
//! let store = MemoryStore::new(StoreOptions::default(), clock.clone());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7717").await.expect("a free port");
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let server = Server::start(listener, Parts::new(store, clock), Settings::default(), async { drop(stopped.await) })?;
//! println!("listening on {}", server.addr());
//! drop(stop);
//! server.wait().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`daemon`] puts it all together: the store, its sweeps, the rosters and the server, from start to shutdown.
//!
//! There is one file per noun under `routes/`. The wire types are those of [`tenure::wire`], shared with the Rust client.
//!
//! The server keeps no state except counters and caches, so any number of daemons may serve one store. It depends on no
//! particular store, decides nothing about death, and sweeps only on request; the sweeper runs beside it.

mod app;
mod audit;
pub mod auth;
mod bodies;
mod conn;
mod connections;
pub mod daemon;
mod dashboard;
mod exposed;
mod extract;
pub mod jwt;
mod lease_log;
mod limits;
mod meters;
mod middleware;
mod nearest;
mod new_groups;
mod origin_check;
mod own_beat;
mod refusals;
mod reply;
mod room;
mod routes;
mod server;
mod session_log;
mod settings;
mod settings_watch;
mod tls;
#[cfg(feature = "otel")]
mod trace;
#[cfg(not(feature = "otel"))]
#[path = "trace/off.rs"]
mod trace;
mod watch;

pub use app::{Parts, RosterParts};
pub use limits::RateSettings;
pub use routes::openapi::document;
pub use server::{Drained, Server};
pub use settings::Settings;
pub use tls::TlsSettings;
