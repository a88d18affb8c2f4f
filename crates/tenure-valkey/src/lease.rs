//! Leases.

use async_trait::async_trait;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token};
use tenure_core::store::{Call, Page, PageRequest};

use crate::store::ValkeyStore;

fn not_yet<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "this store keeps no leases yet"))
}

#[async_trait]
impl LeaseStore for ValkeyStore {
    async fn acquire(&self, _: &Group, _: &TenureId, _: &[LeaseName], _: Call) -> Result<Acquired> {
        not_yet()
    }
    async fn release_leases(
        &self,
        _: &Group,
        _: &TenureId,
        _: &[(LeaseName, Token)],
        _: Option<&MemberId>,
        _: Call,
    ) -> Result<GivenUp> {
        not_yet()
    }
    async fn lease_of(&self, _: &Group, _: &LeaseName) -> Result<Option<Lease>> {
        not_yet()
    }
    async fn leases(&self, _: &Group, _: Option<&MemberId>, _: &PageRequest) -> Result<Page<Lease>> {
        not_yet()
    }
    async fn held_leases(&self, _: &Group, _: &TenureId, _: &PageRequest) -> Result<HeldLeases> {
        not_yet()
    }
}
