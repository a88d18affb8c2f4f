//! Completes the description of each operation: its id, its path parameters, and the header `Tenure-Not-After`.

use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Required};

use super::openapi::operations;

/// Completes the operations of a route. A beat takes no `Tenure-Not-After`.
pub(crate) fn complete(path: &str, item: &mut PathItem, is_beat: bool) {
    for (changes, operation) in operations(item) {
        let of_function = operation.operation_id.take().unwrap_or_default();
        let tag = operation.tags.iter().flatten().next();
        operation.operation_id = Some(match tag {
            Some(tag) => format!("{tag}_{of_function}"),
            None => of_function,
        });
        let header = (changes && !is_beat).then(|| not_after(path));
        let common = names_in(path).chain(header).collect();
        add(operation, common);
    }
}

/// Adds parameters before those that the operation declares, except those it declares itself.
fn add(operation: &mut Operation, mut common: Vec<Parameter>) {
    let own = operation.parameters.take().unwrap_or_default();
    let is_own = |name: &str| own.iter().any(|own| matches!(own, RefOr::T(own) if own.name == name));
    common.retain(|parameter| !is_own(&parameter.name));
    let all: Vec<_> = common.into_iter().map(RefOr::T).chain(own).collect();
    operation.parameters = Some(all).filter(|all| !all.is_empty());
}

/// The parameters in a path, named after their collection: `…/leases/{l}` is a lease.
fn names_in(path: &str) -> impl Iterator<Item = Parameter> {
    let pairs = path.split('/').zip(path.split('/').skip(1));
    pairs.filter_map(|(noun, part)| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let noun = match noun {
            "claims" => "key".to_owned(),
            "registries" => "registry".to_owned(),
            plural => plural.trim_end_matches('s').to_owned(),
        };
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(format!("The {noun}")))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
        Some(parameter.build())
    })
}

/// A ledger does not check the time: a change in a roster that has begun completes.
fn not_after(path: &str) -> Parameter {
    let verb = if path.starts_with("/v1/rosters") {
        "begin"
    } else {
        "take effect"
    };
    let text = SchemaType::from_iter([Type::String, Type::Null]);
    ParameterBuilder::new()
        .name("Tenure-Not-After")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(format!("Store time after which the call must not {verb}")))
        .schema(Some(ObjectBuilder::new().schema_type(text)))
        .build()
}
