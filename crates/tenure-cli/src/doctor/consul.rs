//! An agent of Consul, as `tenure run` needs it: it answers, takes the token, and has a leader to write to.

use std::path::Path;

use serde_json::Value;
use tenure_core::clock::{Clock, within};
use tenure_core::store::Severity;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::finding::Diagnosis;
use super::{PATIENCE, silent};

const CHECK: &str = "consul";
/// No answer that concerns us is longer.
const LONGEST: u64 = 4 << 20;

/// Looks at the agent at `HOST:PORT`, `http://HOST:PORT` or `consul://HOST:PORT`.
pub(super) async fn look(address: &str, token_file: Option<&Path>, clock: &dyn Clock) -> Vec<Diagnosis> {
    let (scheme, rest) = address.split_once("://").unwrap_or(("consul", address));
    if !matches!(scheme, "consul" | "http") {
        let detail = format!("an agent behind {scheme}:// is not looked at");
        return vec![Diagnosis::new(CHECK, Severity::Warning, detail).advise("`tenure run` tells what it answers")];
    }
    let token = match token_file.map(std::fs::read_to_string).transpose() {
        Ok(token) => token.map(|token| token.trim().to_owned()).unwrap_or_default(),
        Err(cause) => {
            let detail = format!("the token file cannot be read: {cause}");
            return vec![
                Diagnosis::new(CHECK, Severity::Error, detail).advise("name another one with --consul-token-file"),
            ];
        }
    };
    let asked = within(clock, PATIENCE, ask(rest, &token)).await;
    match asked {
        None => vec![silent(CHECK)],
        Some(Err(cause)) => {
            let told = Diagnosis::new(
                CHECK,
                Severity::Error,
                format!("the agent at {rest} cannot be asked: {cause}"),
            );
            vec![told.advise("is it running, and is the address right?")]
        }
        Some(Ok(answers)) => read(rest, &answers),
    }
}

/// The status and body of what the agent says of itself, and of who leads its servers.
struct Answers {
    agent: (u16, String),
    leader: (u16, String),
}

async fn ask(place: &str, token: &str) -> std::io::Result<Answers> {
    Ok(Answers {
        agent: get(place, "/v1/agent/self", token).await?,
        leader: get(place, "/v1/status/leader", token).await?,
    })
}

/// HTTP/1.0, so that the answer is neither in chunks nor followed by another.
async fn get(place: &str, path: &str, token: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(place).await?;
    // A token with a line in it would be another header.
    let token: String = token.chars().filter(|one| !one.is_control()).collect();
    let shown = if token.is_empty() {
        String::new()
    } else {
        format!("X-Consul-Token: {token}\r\n")
    };
    let request = format!("GET {path} HTTP/1.0\r\nHost: {place}\r\n{shown}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    Ok((status, body.to_owned()))
}

fn read(place: &str, answers: &Answers) -> Vec<Diagnosis> {
    let (status, body) = &answers.agent;
    match status {
        200 => {}
        403 => {
            let told = Diagnosis::new(
                CHECK,
                Severity::Error,
                format!("the agent at {place} refuses the token"),
            );
            return vec![
                told.advise("a token with `agent:read`, and `service:write` for the service (--consul-token-file)"),
            ];
        }
        _ => {
            let told = Diagnosis::new(CHECK, Severity::Error, format!("{place} answers {status}"));
            return vec![told.advise("is it an agent of Consul?")];
        }
    }
    let known: Value = serde_json::from_str(body).unwrap_or_default();
    let version = known["Config"]["Version"].as_str().unwrap_or("of an unknown version");
    let mut told = vec![Diagnosis::new(
        CHECK,
        Severity::Ok,
        format!("the agent at {place} answers: Consul {version}"),
    )];
    let has_leader = answers.leader.0 == 200 && answers.leader.1.trim().len() > 2;
    if !has_leader {
        let none = Diagnosis::new(
            CHECK,
            Severity::Error,
            "its servers have no leader, so nothing can be registered",
        );
        told.push(none.advise("look at the servers: `consul operator raft list-peers`"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consul_answers_become_findings() {
        let judged = |agent: u16, body: &str, leader: &str| {
            let answers = Answers {
                agent: (agent, body.to_owned()),
                leader: (200, leader.to_owned()),
            };
            let told = read("h:1", &answers);
            let last = told.last().expect("there is a finding").finding.clone();
            (last.severity, last.detail)
        };
        let known = r#"{"Config": {"Version": "1.19.1"}}"#;
        let (severity, detail) = judged(200, known, "\"10.0.0.1:8300\"");
        assert_eq!((severity, detail.ends_with("Consul 1.19.1")), (Severity::Ok, true));
        assert!(judged(200, known, "\"\"").1.contains("no leader"));
        assert!(judged(403, "", "").1.contains("refuses the token"));
        assert!(judged(404, "", "").1.contains("answers 404"));
    }
}
