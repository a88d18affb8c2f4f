//! `/openapi.json`: the description of all routes, generated from their declarations.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure::wire::{Code, EventAnswer, PROBLEM_JSON, Problem};
use tenure_core::clock::SystemClock;
use tenure_core::memory::MemoryStore;
use tenure_core::store::StoreOptions;
use tokio_util::sync::CancellationToken;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi, Ref, RefOr, Response as Described, ResponseBuilder};
use utoipa::{IntoResponses, OpenApi as _};

use crate::app::{App, Parts};
use crate::auth::{PROVIDER, TOKEN};
use crate::origin_check::OriginCheck;
use crate::reply::json_bytes;
use crate::settings::Settings;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Tenure",
        description = "Who is alive, who owns what, and what must be cleaned up because its owner died.\n\n\
            Durations are integers named `…_ms`, times are RFC 3339 in UTC. Errors are `application/problem+json` with a \
            stable `code`. A mutating call may carry the header `Tenure-Not-After`: the store time after which it must \
            not take effect. Derive it from `Tenure-Store-Time` of an earlier answer."
    ),
    components(schemas(Problem, EventAnswer)),
    modifiers(&Schemes)
)]
struct DocumentHead;

/// The document without routes.
pub(crate) fn head() -> OpenApi {
    DocumentHead::openapi()
}

/// Describes authentication.
struct Schemes;

impl utoipa::Modify for Schemes {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_with(Default::default);
        let ours = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("tnr_ and 64 hexadecimal digits")
            .description(Some(
                "A token of the daemon's token file, if tokens are required. An entry names the scope that is sufficient; \
                 with `everywhere`, the token must not be restricted to groups or rosters.",
            ));
        let theirs = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some(
                "A provider's own token, if the daemon has keys for those. It is valid for that provider only, and no other \
                 token is accepted then.",
            ));
        components.add_security_scheme(TOKEN, SecurityScheme::Http(ours.build()));
        components.add_security_scheme(PROVIDER, SecurityScheme::Http(theirs.build()));
    }
}

/// The operations of a route, each with whether it changes something.
pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let operations = [
        (false, &mut item.get),
        (true, &mut item.put),
        (true, &mut item.post),
        (true, &mut item.delete),
        (true, &mut item.patch),
    ];
    let operations = operations.into_iter();
    operations.filter_map(|(changes, of)| Some((changes, of.as_mut()?)))
}

/// Adds the errors of the middleware to the operations of a route.
pub(crate) fn guarded(item: &mut PathItem) {
    for (changes, operation) in operations(item) {
        let mut codes = vec![Code::WrongHost];
        if operation.security != Some(vec![SecurityRequirement::default()]) {
            codes.extend([Code::Unauthenticated, Code::Forbidden, Code::RateLimited]);
        }
        if changes {
            codes.push(Code::WrongOrigin);
        }
        for (status, described) in problems(&codes) {
            let known = operation.responses.responses.get_mut(&status);
            match (known, described) {
                (Some(RefOr::T(known)), RefOr::T(described)) => {
                    known.description = format!("{}, {}", described.description, known.description);
                }
                (_, described) => {
                    operation.responses.responses.insert(status, described);
                }
            }
        }
    }
}

/// The whole document, without a server.
///
/// # Panics
/// Outside a tokio runtime.
#[must_use]
pub fn document() -> String {
    let clock = SystemClock::shared();
    let store = MemoryStore::new(StoreOptions::default(), Arc::clone(&clock));
    let (parts, ended) = (Parts::new(store, clock), CancellationToken::new());
    let app =
        App::new(parts, Settings::default(), OriginCheck::open(), ended).expect("settings without files cannot fail");
    let (_, document) = super::all(&app).split_for_parts();
    String::from_utf8_lossy(&write(&document)).into_owned()
}

pub(crate) fn write(document: &OpenApi) -> Bytes {
    serde_json::to_vec_pretty(document).unwrap_or_default().into()
}

/// Get this OpenAPI document
#[utoipa::path(get, path = "/openapi.json", tag = "daemon",
    security(()), responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn serve(State(app): State<Arc<App>>) -> Response {
    json_bytes(StatusCode::OK, app.openapi.get().cloned().unwrap_or_default())
}

/// The errors of every route that reads from the store.
pub(crate) struct ReadErrors;

/// The errors of every route that changes something.
pub(crate) struct WriteErrors;

/// The error of a tenure that has ended.
pub(crate) struct EndedError;

/// The error of a daemon without a ledger, which serves no rosters.
pub(crate) struct NoRosters;

/// The error of a resource that does not exist.
pub(crate) struct NotFound;

/// The errors of a read of a roster.
pub(crate) struct RosterReadErrors;

/// The errors of a change in a roster.
pub(crate) struct RosterWriteErrors;

/// The errors of a change in a roster that providers may not make.
pub(crate) struct OperatorErrors;

/// The errors of a provider's own routes.
pub(crate) struct ProviderErrors;

impl IntoResponses for ReadErrors {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        use Code::{Internal, Invalid, StoreUnavailable};
        problems(&[Invalid, Internal, Code::Denied, StoreUnavailable, Code::Overloaded])
    }
}

impl IntoResponses for WriteErrors {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        use Code::{BodyTooLarge, MalformedJson, RequestTimeout, TooLate, UnsupportedMediaType};
        let codes = [
            MalformedJson,
            RequestTimeout,
            TooLate,
            BodyTooLarge,
            UnsupportedMediaType,
        ];
        with(ReadErrors::responses(), &codes)
    }
}

impl IntoResponses for EndedError {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        problems(&[Code::TenureEnded])
    }
}

impl IntoResponses for NoRosters {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        problems(&[Code::Unsupported])
    }
}

impl IntoResponses for NotFound {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        problems(&[Code::NotFound])
    }
}

impl IntoResponses for RosterReadErrors {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        with(ReadErrors::responses(), &[Code::NotFound, Code::Unsupported])
    }
}

impl IntoResponses for RosterWriteErrors {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        with(WriteErrors::responses(), &[Code::Unsupported])
    }
}

impl IntoResponses for OperatorErrors {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        with(RosterWriteErrors::responses(), &[Code::NotForProviders])
    }
}

impl IntoResponses for ProviderErrors {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        let tokens = Code::ALL.iter().filter(|code| code.status() == 401);
        let others = [Code::WrongProvider, Code::ProviderDeactivated, Code::NotFound];
        with(
            RosterWriteErrors::responses(),
            &Vec::from_iter(tokens.copied().chain(others)),
        )
    }
}

/// Adds problems, which must have other statuses.
fn with(mut all: BTreeMap<String, RefOr<Described>>, codes: &[Code]) -> BTreeMap<String, RefOr<Described>> {
    all.extend(problems(codes));
    all
}

/// Describes problems, by status.
pub(crate) fn problems(codes: &[Code]) -> BTreeMap<String, RefOr<Described>> {
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.status()).or_default().push(code.as_str());
    }
    let schema = Ref::from_schema_name("Problem");
    by_status
        .into_iter()
        .map(|(status, codes)| {
            let content = ContentBuilder::new().schema(Some(schema.clone())).build();
            let described = ResponseBuilder::new()
                .description(format!("`{}`", codes.join("`, `")))
                .content(PROBLEM_JSON, content);
            (status.to_string(), RefOr::T(described.build()))
        })
        .collect()
}
