//! A collector: takes OTLP over HTTP as protobuf, as a real one does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tenure_testkit::wait;

use crate::support::SOON;

/// What it does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manners {
    Takes,
    Refuses,
    /// Reads, and never answers.
    Hangs,
}

/// A collector on a free port.
pub(super) struct Collector {
    addr: SocketAddr,
    received: Arc<Mutex<Received>>,
}

/// What has arrived.
#[derive(Default)]
struct Received {
    heads: String,
    bodies: Vec<Vec<u8>>,
}

impl Collector {
    pub(super) fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Received::default()));
        let its = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let its = Arc::clone(&its);
                std::thread::spawn(move || serve(stream, manners, &its));
            }
        });
        Self { addr, received }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    fn received<T>(&self, look: impl FnOnce(&Received) -> T) -> T {
        look(&self.received.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The heads of all requests.
    pub(super) fn heads(&self) -> String {
        self.received(|received| received.heads.clone())
    }

    /// All bodies, as they were sent.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.received(|received| received.bodies.concat())
    }

    /// All requests.
    pub(super) fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let decode = |body: &Vec<u8>| ExportTraceServiceRequest::decode(&body[..]).expect("a request is protobuf");
        self.received(|received| received.bodies.iter().map(decode).collect())
    }

    /// All spans, in the order in which they ended.
    pub(super) fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// Waits for a span.
    #[track_caller]
    pub(super) fn span(&self, what: &str, is_it: impl Fn(&Span) -> bool) -> Span {
        let mut found = None;
        wait::until(&format!("{what} arrives"), SOON, || {
            found = self.spans().into_iter().find(&is_it);
            found.is_some()
        });
        found.unwrap()
    }
}

fn serve(stream: TcpStream, manners: Manners, received: &Mutex<Received>) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        {
            let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
            received.heads.push_str(&head);
            received.bodies.push(body);
        }
        let status = match manners {
            Manners::Takes => "200 OK",
            Manners::Refuses => "503 Service Unavailable",
            Manners::Hangs => continue,
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n");
        answers.write_all(answer.as_bytes()).ok()?;
    }
}

/// An attribute as text.
pub(super) fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match &found.value {
        Some(AnyValue { value: Some(value) }) => Some(match value {
            Value::StringValue(text) => text.clone(),
            Value::IntValue(number) => number.to_string(),
            other => panic!("{key} is {other:?}"),
        }),
        _ => None,
    }
}
