//! etcd: a lease for each member with its key, kept over gRPC as etcd's own clients do, or over the JSON gateway.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use serde_json::Value;
use tenure_testkit::etcd::Etcd;
use tenure_testkit::{Availability, have};

use super::grpc;
use super::peer::{Holder, Locks, Peer, Way, share};
use super::tenure::BATCH;
use crate::load::{Connection, Http, Lane, request};
use crate::subject::member;

const JOINERS: usize = 32;
/// The TTL of a waiter's lease: it needs no renewal.
const WAITER_SECONDS: u64 = 120;
/// Longer than any TTL here.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct EtcdServer {
    etcd: Etcd,
    ttl: Duration,
}

impl EtcdServer {
    pub(super) async fn start(ttl: Duration) -> Result<Option<Self>> {
        if let Availability::Missing { .. } = have("etcd") {
            return Ok(None);
        }
        let etcd = tokio::task::spawn_blocking(Etcd::start).await?;
        Ok(etcd.map(|etcd| Self { etcd, ttl }))
    }
}

#[async_trait]
impl Peer for EtcdServer {
    fn processes(&self) -> Result<Vec<u32>> {
        Ok(vec![self.etcd.process().pid().context("etcd has ended")?])
    }

    async fn join(&self, members: usize) -> Result<()> {
        let addr = self.etcd.addr();
        let ids = || (0..members).map(|number| (number, number + 1));
        let grant = ids().map(|(_, id)| {
            let body = format!(r#"{{"TTL":{},"ID":{id}}}"#, self.ttl.as_secs());
            request(addr, "POST", "/v3/lease/grant", &body)
        });
        super::send_all(addr, JOINERS, grant)
            .await
            .context("grant leases at etcd")?;
        let put = ids().map(|(number, id)| {
            let key = base64(format!("members/{}", member(number)).as_bytes());
            let body = format!(r#"{{"key":"{key}","value":"{}","lease":{id}}}"#, base64(b"v"));
            request(addr, "POST", "/v3/kv/put", &body)
        });
        super::send_all(addr, JOINERS, put).await.context("put keys into etcd")
    }

    /// A stream for each lane, with one request in flight.
    async fn lanes(&self, members: Range<usize>, lanes: usize) -> Result<Vec<Lane>> {
        let mut all = Vec::new();
        for lane in 0..lanes {
            let keep = share(members.clone(), lane, lanes).map(|number| grpc::keep_alive(&[number + 1]));
            all.push(stream(self.etcd.addr(), keep.collect(), 0, 1).await?);
        }
        Ok(all)
    }

    async fn other_ways(&self, members: usize, lanes: usize) -> Result<Vec<Way>> {
        let addr = self.etcd.addr();
        let ids: Vec<usize> = (1..=members).collect();
        let batches: Arc<[Vec<u8>]> = ids.chunks_exact(BATCH).map(grpc::keep_alive).collect();
        let (mut many, mut gateway) = (Vec::new(), Vec::new());
        for lane in 0..lanes {
            many.push(stream(addr, Arc::clone(&batches), lane, BATCH).await?);
            let keep = |number| {
                request(
                    addr,
                    "POST",
                    "/v3/lease/keepalive",
                    &format!(r#"{{"ID":{}}}"#, number + 1),
                )
            };
            let requests = share(0..members, lane, lanes).map(keep).collect();
            // For an expired lease etcd replies with status 200 and without a TTL.
            let good = |body: &[u8]| body.windows(5).any(|window| window == b"\"TTL\"");
            gateway.push(Lane::http(addr, requests, 0.., good).await?);
        }
        Ok(vec![
            Way::batched("100 in flight on a stream", BATCH, many),
            Way::single("JSON gateway", gateway),
        ])
    }

    async fn alive(&self) -> Result<usize> {
        let mut http = Http::connect(self.etcd.addr()).await?;
        let (first, end) = (base64(b"members/"), base64(b"members0"));
        let range = format!(r#"{{"key":"{first}","range_end":"{end}","keys_only":true}}"#);
        let found = http.call("POST", "/v3/kv/range", &range).await?;
        Ok(found.matches("\"key\":").count())
    }

    fn locks(&self) -> Vec<(&'static str, Arc<dyn Locks>)> {
        vec![("", Arc::new(Keys(self.etcd.addr())))]
    }
}

/// A lane on a stream of its own. `each` is the number of heartbeats in a request.
async fn stream(addr: SocketAddr, requests: Arc<[Vec<u8>]>, first: usize, each: usize) -> Result<Lane> {
    let mut connection = Connection::connect(addr).await?;
    connection
        .exchange(&grpc::open(&addr.to_string()), grpc::opened)
        .await?;
    let parse = Arc::new(move |bytes: &[u8]| grpc::kept_alive(bytes, each));
    Ok(Lane::new(vec![connection], requests, first.., parse))
}

/// Keys with a lease.
struct Keys(SocketAddr);

#[async_trait]
impl Locks for Keys {
    fn shortest(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn hold(&self, lock: &str, ttl: Duration) -> Result<Box<dyn Holder>> {
        let mut http = Http::connect(self.0).await?;
        let lease = grant(&mut http, ttl.as_secs()).await?;
        ensure!(create(&mut http, lock, &lease).await?, "the lock {lock} is not free");
        Ok(Box::new(LeaseHolder { http, lease }))
    }

    /// A watch until the key is deleted, then a transaction that creates it.
    async fn wait(&self, lock: &str) -> Result<Instant> {
        let mut http = Http::connect(self.0).await?;
        let lease = grant(&mut http, WAITER_SECONDS).await?;
        let watch = format!(r#"{{"create_request":{{"key":"{}"}}}}"#, base64(lock.as_bytes()));
        let watch = request(self.0, "POST", "/v3/watch", &watch);
        let deleted = |bytes: &[u8]| {
            let found = bytes.windows(8).any(|window| window == b"\"DELETE\"");
            Ok(found.then_some((bytes.len(), ())))
        };
        let mut connection = Connection::connect(self.0).await?;
        connection.exchange_within(PATIENCE, &watch, deleted).await?;
        ensure!(create(&mut http, lock, &lease).await?, "another client was faster");
        Ok(Instant::now())
    }
}

struct LeaseHolder {
    http: Http,
    lease: String,
}

#[async_trait]
impl Holder for LeaseHolder {
    async fn renew(&mut self) -> Result<()> {
        let body = format!(r#"{{"ID":{}}}"#, self.lease);
        let kept = self.http.call("POST", "/v3/lease/keepalive", &body).await?;
        ensure!(kept.contains("\"TTL\""), "the holder's lease has expired");
        Ok(())
    }
}

async fn grant(http: &mut Http, seconds: u64) -> Result<String> {
    let body = format!(r#"{{"TTL":{seconds}}}"#);
    let granted: Value = serde_json::from_str(&http.call("POST", "/v3/lease/grant", &body).await?)?;
    Ok(granted["ID"].as_str().context("no id of a lease")?.to_owned())
}

/// Creates the key unless there is one.
async fn create(http: &mut Http, lock: &str, lease: &str) -> Result<bool> {
    let key = base64(lock.as_bytes());
    let absent = format!(r#"{{"key":"{key}","target":"CREATE","create_revision":"0"}}"#);
    let put = format!(r#"{{"request_put":{{"key":"{key}","value":"dg==","lease":{lease}}}}}"#);
    let txn = format!(r#"{{"compare":[{absent}],"success":[{put}]}}"#);
    Ok(http
        .call("POST", "/v3/kv/txn", &txn)
        .await?
        .contains("\"succeeded\":true"))
}

/// As the JSON gateway expects bytes.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | usize::from(*chunk.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
            text.push(if at <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_the_last_group() {
        let texts = ["", "f", "fo", "foo", "members/"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "bWVtYmVycy8="]);
    }
}
