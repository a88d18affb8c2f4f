//! Targets.

use async_trait::async_trait;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, LeaseName};
use tenure_core::store::{Call, Page, PageRequest};
use tenure_core::target::{Target, TargetSpec, TargetStore};

use super::HttpStore;

fn not_yet<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "this store keeps no targets yet"))
}

#[async_trait]
impl TargetStore for HttpStore {
    async fn put_target(&self, _: &Group, _: &LeaseName, _: TargetSpec, _: Call) -> Result<bool> {
        not_yet()
    }
    async fn remove_target(&self, _: &Group, _: &LeaseName, _: Call) -> Result<bool> {
        not_yet()
    }
    async fn target(&self, _: &Group, _: &LeaseName) -> Result<Option<Target>> {
        not_yet()
    }
    async fn targets(&self, _: &Group, _: &PageRequest) -> Result<Page<Target>> {
        not_yet()
    }
}
