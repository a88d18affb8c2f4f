//! What routes take in their path and in headers, each described once.

use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{RefOr, Required, Schema};
use utoipa::{IntoParams, PartialSchema};

macro_rules! parameters {
    ($($name:ident: $place:ident $key:literal as $kind:ty, $what:literal;)*) => {$(
        pub(crate) struct $name;

        impl IntoParams for $name {
            fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
                vec![parameter(ParameterIn::$place, $key, <$kind>::schema(), $what)]
            }
        }
    )*};
}

parameters! {
    InGroup: Path "g" as String, "The group";
    InRoster: Path "r" as String, "The roster";
    OfProvider: Path "p" as String, "The provider";
    OfEngagement: Path "e" as String, "The engagement";
    NotAfter: Header "Tenure-Not-After" as Option<String>, "Store time after which nothing must happen";
    BeginsBefore: Header "Tenure-Not-After" as Option<String>, "Store time after which nothing must begin";
    LastEvent: Header "Last-Event-ID" as Option<u64>, "For streams: goes before `after`";
}

fn parameter(place: ParameterIn, name: &str, schema: RefOr<Schema>, what: &str) -> Parameter {
    let required = match place {
        ParameterIn::Path => Required::True,
        _ => Required::False,
    };
    let builder = ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required);
    builder.description(Some(what)).schema(Some(schema)).build()
}
