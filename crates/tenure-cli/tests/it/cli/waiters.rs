//! A crowd of waiters at one daemon: each is served in turn or answered, without polls and in bounded memory.
//!
//! `cargo xtask bench waiters` measures ten times as many.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::{Daemon, SOON};

const LEASES: usize = 10;
/// Waiters of each lease that stay, that hang up, and whose wait ends before their turn.
const STAYING: usize = 40;
const LEAVING: usize = 5;
const HASTY: usize = 4;
/// A stall of the machine restarts every ttl, and grants nothing for one. The waits are longer.
const TTL: u64 = 20_000;

/// One request, repeated on 503 and `too_late`: a stall of the machine can exceed the request time-out.
async fn ask(addr: SocketAddr, method: &str, path: &str, body: Value) -> (u16, Value) {
    loop {
        let answer = ask_once(addr, method, path, &body).await;
        if !is_stalled(&answer) {
            return answer;
        }
    }
}

fn is_stalled(answer: &(u16, Value)) -> bool {
    answer.0 == 503 || answer.1["code"] == "too_late"
}

async fn ask_once(addr: SocketAddr, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut stream = TcpStream::connect(addr).await.expect("the daemon listens");
    let body = body.to_string();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .await
        .expect("the daemon reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the daemon answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    (status.expect("a status"), body)
}

/// Releases a lease. A call whose answer was lost may have released it.
async fn give_back(addr: SocketAddr, path: &str, tenure: &str, token: u64) {
    let given = json!({ "tenure": tenure, "token": token });
    let mut answer = ask_once(addr, "POST", path, &given).await;
    let is_repeated = is_stalled(&answer);
    if is_repeated {
        answer = ask(addr, "POST", path, given).await;
    }
    let is_done = answer.0 == 200 || is_repeated && answer.1["code"] == "not_holder";
    assert!(is_done, "{answer:?}");
}

/// The queue of one lease.
struct Lane {
    addr: SocketAddr,
    number: usize,
    holder: (String, u64),
    waiters: Vec<JoinHandle<u64>>,
}

impl Lane {
    fn path(&self, act: &str) -> String {
        format!("/v1/groups/g/leases/lease-{}{act}", self.number)
    }

    async fn join(&self, name: String) -> String {
        let member = json!({ "member": name, "ttl_ms": TTL });
        let (status, joined) = ask(self.addr, "POST", "/v1/groups/g/members", member).await;
        assert_eq!(status, 201, "{joined}");
        joined["tenure"].as_str().unwrap().to_owned()
    }

    /// A lease with its holder.
    async fn hold(addr: SocketAddr, number: usize) -> Self {
        let (holder, waiters) = Default::default();
        let mut lane = Self {
            addr,
            number,
            holder,
            waiters,
        };
        let holder = lane.join(format!("holder-{number}")).await;
        let (status, grant) = ask(addr, "POST", &lane.path("/acquire"), json!({ "tenure": holder })).await;
        assert_eq!(status, 200, "{grant}");
        lane.holder = (holder, grant["token"].as_u64().unwrap());
        lane
    }

    /// Adds a waiter, which releases the lease when it has it.
    async fn queue(mut self) -> Self {
        let (addr, acquire, release) = (self.addr, self.path("/acquire"), self.path("/release"));
        let tenure = self
            .join(format!("waiter-{}-{}", self.number, self.waiters.len()))
            .await;
        self.waiters.push(tokio::spawn(async move {
            let (status, grant) = ask(addr, "POST", &acquire, json!({ "tenure": tenure, "wait_ms": 60_000 })).await;
            assert_eq!(status, 200, "{grant}");
            let token = grant["token"].as_u64().unwrap();
            give_back(addr, &release, &tenure, token).await;
            token
        }));
        self
    }

    /// Some are told that their wait is over, and others hang up.
    async fn thin(mut self) -> Self {
        let mut hasty = JoinSet::new();
        for waiter in 0..HASTY {
            let tenure = self.join(format!("hasty-{}-{waiter}", self.number)).await;
            let (addr, path) = (self.addr, self.path("/acquire"));
            hasty.spawn(async move { ask(addr, "POST", &path, json!({ "tenure": tenure, "wait_ms": 200 })).await });
        }
        for (status, problem) in hasty.join_all().await {
            assert_eq!((status, &problem["code"]), (409, &json!("lease_held")), "{problem}");
            assert!(problem["waited_ms"].as_u64() >= Some(200), "{problem}");
        }
        for waiter in 0..LEAVING {
            self.waiters.remove(waiter * 3).abort();
        }
        self
    }

    /// Every waiter that stays is served, in the order of arrival.
    async fn serve(self) {
        let (tenure, token) = &self.holder;
        give_back(self.addr, &self.path("/release"), tenure, *token).await;
        let mut tokens = vec![*token];
        for waiter in self.waiters {
            tokens.push(waiter.await.expect("it is served"));
        }
        assert!(tokens.is_sorted() && tokens.len() == STAYING + 1, "{tokens:?}");
    }
}

/// Waits until so many requests wait for each lease.
async fn until_waiting(addr: SocketAddr, count: usize) {
    wait::until_async("the requests wait", SOON, || async {
        let page = ask(addr, "GET", "/v1/groups/g/leases", Value::Null).await.1;
        let leases = page["leases"].as_array().expect("a page");
        leases.len() == LEASES && leases.iter().all(|lease| lease["waiting"] == count)
    })
    .await;
}

/// Heartbeats for all members, until it is dropped.
async fn beat_all(addr: SocketAddr) {
    loop {
        let page = ask(addr, "GET", "/v1/groups/g/members?limit=1000", Value::Null).await.1;
        let members = page["members"].as_array().expect("a page").iter();
        let beats: Vec<Value> = members.map(|member| json!({ "tenure": member["tenure"] })).collect();
        ask(addr, "POST", "/v1/groups/g/beats", json!({ "beats": beats })).await;
        // tidy: waits on the interval of the heartbeats
        tokio::time::sleep(Duration::from_millis(TTL / 5)).await;
    }
}

/// Does something for all lanes together.
async fn all<T: Send + 'static>(work: impl Iterator<Item = impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    JoinSet::from_iter(work).join_all().await
}

fn resident_kib(daemon: &Daemon) -> u64 {
    let pid = daemon.process.pid().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

/// How often the daemon lost the announcements of turns, after which each waiter asks again.
fn losses(daemon: &Daemon) -> u64 {
    let log = daemon.process.log();
    log.matches("turns of waiting requests are announced again").count() as u64
}

/// Waits for two seconds of nothing but heartbeats and sweeps. After a loss all ask once; polls would be in each two seconds.
async fn until_quiet(scripts_run: &impl Fn() -> u64) {
    wait::until_async("nothing asks", SOON, || async {
        let start = scripts_run();
        // tidy: waits on the time within which a poll would be seen
        tokio::time::sleep(Duration::from_secs(2)).await;
        scripts_run() - start < 50
    })
    .await;
}

async fn crowd_is_served(daemon: &Daemon, scripts_run: impl Fn() -> u64) {
    let addr = daemon.addr;
    let before = resident_kib(daemon);
    let mut lanes = all((0..LEASES).map(|number| Lane::hold(addr, number))).await;
    let beating = tokio::spawn(beat_all(addr));
    for waiting in 1..=STAYING + LEAVING {
        lanes = all(lanes.into_iter().map(Lane::queue)).await;
        until_waiting(addr, waiting).await;
    }
    let one = (resident_kib(daemon) - before) / (LEASES * (STAYING + LEAVING)) as u64;
    eprintln!("{one} KiB for a waiter with its connection and its member");
    assert!(one < 100, "{one} KiB");
    let lanes = all(lanes.into_iter().map(Lane::thin)).await;
    until_waiting(addr, STAYING).await;
    until_quiet(&scripts_run).await;
    let (idle, asked_again, begun) = (scripts_run(), losses(daemon), Instant::now());
    all(lanes.into_iter().map(Lane::serve)).await;
    let served = scripts_run() - idle;
    // For each a release, which grants, and the request that takes the grant; the sweeps, which take four steps at most
    // every 20 ms; and all of them once after each loss.
    let sweeps = 4 * u64::try_from(begun.elapsed().as_millis() / 20).unwrap();
    let most = (2 + losses(daemon) - asked_again) * (LEASES * STAYING) as u64 + sweeps + 50;
    assert!(served < most, "{served} scripts, and at most {most} are needed");
    let (_, metrics) = daemon.text("GET", "/metrics", "");
    assert!(metrics.contains("tenure_lease_waiters 0\n"), "{metrics}");
    beating.abort();
}

const PATIENT: [&str; 2] = ["--limits-request-timeout", "2s"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_on_an_embedded_store_is_served_in_order() {
    let daemon = Daemon::start(&PATIENT);
    crowd_is_served(&daemon, || 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_on_valkey_is_served_in_order_without_polls() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let server = Arc::new(server);
    let url = server.url();
    let daemon = Daemon::start(&[&PATIENT[..], &["--store", &url]].concat());
    assert_eq!(daemon.http("POST", "/v1/settle", "").0, 200);
    let scripts_run = || {
        let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    crowd_is_served(&daemon, scripts_run).await;
    let left = server.cli(&["KEYS", "{tenure:g}:wait*"]).unwrap().texts();
    assert!(left.is_empty(), "{left:?}");
}
