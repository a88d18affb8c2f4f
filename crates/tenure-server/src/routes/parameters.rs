//! What routes need not say of themselves: a name for each operation, the names in its path, and the header of what
//! changes something.

use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Required};

use super::openapi::operations;

/// Adds what is missing in the operations of a route. A beat takes no `Tenure-Not-After`.
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

/// Puts parameters before those that the operation has of its own, and leaves out what it describes itself.
fn add(operation: &mut Operation, mut common: Vec<Parameter>) {
    let own = operation.parameters.take().unwrap_or_default();
    let is_own = |name: &str| own.iter().any(|own| matches!(own, RefOr::T(own) if own.name == name));
    common.retain(|parameter| !is_own(&parameter.name));
    let all: Vec<_> = common.into_iter().map(RefOr::T).chain(own).collect();
    operation.parameters = Some(all).filter(|all| !all.is_empty());
}

/// The names in a path: `…/leases/{l}` is a lease, a key is that of a claim.
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

/// A ledger knows no such time: a change in a roster that has begun is made.
fn not_after(path: &str) -> Parameter {
    let verb = if path.starts_with("/v1/rosters") {
        "begin"
    } else {
        "happen"
    };
    let text = SchemaType::from_iter([Type::String, Type::Null]);
    ParameterBuilder::new()
        .name("Tenure-Not-After")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(format!("Store time after which nothing must {verb}")))
        .schema(Some(ObjectBuilder::new().schema_type(text)))
        .build()
}
