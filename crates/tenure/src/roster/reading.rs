//! Reads: providers, availability, counts and the log.

use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{Candidate, LogEntry, Provider, ProviderState, RosterStats};
use tenure_core::roster::{MirroredProvider, Standing};
use tenure_core::store::{Page, PageRequest, bad_cursor, check_limit};
use tenure_core::time::StoreTime;

use super::answer::{Availability, ProviderView, Source, Sourced};
use super::handle::Roster;
use super::provider::no_provider;
use crate::meters;

/// How many pages of the mirror one page of a listing scans for a rare state.
const PAGES: usize = 10;

impl Roster {
    /// One provider; `None` if it does not exist. For an offline provider the last heartbeat comes from the ledger, and
    /// stays unknown when the ledger does not answer in time. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn provider(&self, provider: &ProviderId) -> Result<Sourced<Option<ProviderView>>> {
        let mut found = self.counted(self.find(provider)).await?;
        if found.source == Source::Mirror {
            self.recall_heartbeats(found.value.as_mut_slice()).await;
        }
        Ok(found)
    }

    async fn find(&self, provider: &ProviderId) -> Result<Sourced<Option<ProviderView>>> {
        if let Some(Some(seen)) = self.look_in_mirror(provider).await? {
            return Ok(Sourced::mirror(Some(view_of_seen(seen))));
        }
        let row = self.inner.row(&self.state, provider).await?;
        let Some(row) = row else {
            return Ok(Sourced::ledger(None));
        };
        Ok(Sourced::ledger(self.views(vec![row]).await?.pop()))
    }

    /// Adds the last heartbeats of offline providers: the hot store keeps only those of online ones.
    async fn recall_heartbeats(&self, views: &mut [ProviderView]) {
        let unknown = views.iter().filter(|view| view.row.last_heartbeat_at.is_none());
        let names: Vec<ProviderId> = unknown.map(|view| view.row.provider.clone()).collect();
        if names.is_empty() {
            return;
        }
        let Ok(heard) = self.inner.last_heartbeats(&self.state, names).await else {
            return;
        };
        for row in views.iter_mut().map(|view| &mut view.row) {
            if row.last_heartbeat_at.is_none() {
                row.last_heartbeat_at = last_heard(heard.get(&row.provider).copied(), row);
            }
        }
    }

    /// Whether a provider is online, active, and has sent a recent heartbeat. O(1).
    ///
    /// # Errors
    /// `NotFound` for an unknown provider.
    pub async fn is_reachable(&self, provider: &ProviderId) -> Result<Sourced<bool>> {
        let Sourced { value, source } = self.counted(self.find(provider)).await?;
        let value = value.ok_or_else(|| no_provider(provider))?.reachable;
        Ok(Sourced { value, source })
    }

    /// The first providers that can take work, as in [`Roster::available_page`].
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub async fn available(&self, limit: u32) -> Result<Sourced<Vec<Candidate>>> {
        let Sourced { value, source } = self.available_page(&PageRequest { after: None, limit }).await?;
        let value = value.items;
        Ok(Sourced { value, source })
    }

    /// The providers that can take work: the least occupied first, then by name. A provider whose occupancy changes
    /// between two pages may be in both or in none. A listing that began in the mirror can continue in the ledger.
    /// O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor of another listing, or a limit outside 1..=1000.
    pub async fn available_page(&self, page: &PageRequest) -> Result<Sourced<Page<Candidate>>> {
        check_limit(page.limit)?;
        self.counted(async {
            if let Some(ranked) = self.rank_in_mirror(page).await? {
                return Ok(Sourced::mirror(ranked));
            }
            Ok(Sourced::ledger(self.inner.candidates(&self.state, page).await?))
        })
        .await
    }

    /// How many providers can take work. From the mirror it is the shared snapshot, at most as old as the roster's
    /// settings allow; from the ledger it is this process's count, at most a second old. O(1), and once a second
    /// O(providers).
    ///
    /// # Errors
    /// None of its own.
    pub async fn availability(&self) -> Result<Sourced<Availability>> {
        self.counted(async {
            let mirror = self.state.mirror();
            if mirror.is_believed() {
                let settings = self.inner.settings_of(&self.state).await;
                let call = mirror.api()?.availability(mirror.group(), settings.snapshot);
                if let Some(counted) = self.believed(mirror.read(call, |counted| &counted.mirror).await)? {
                    let first = PageRequest { after: None, limit: 1 };
                    // An incomplete snapshot must not report none while some were not counted.
                    let count = match counted.complete || counted.count > 0 {
                        true => counted.count,
                        false => self
                            .rank_in_mirror(&first)
                            .await?
                            .map_or(0, |first| first.items.len() as u64),
                    };
                    return Ok(Sourced::mirror(Availability {
                        count,
                        as_of: counted.as_of,
                        complete: counted.complete,
                    }));
                }
            }
            Ok(Sourced::ledger(self.inner.count(&self.state).await?))
        })
        .await
    }

    /// How many providers are in each state. From the mirror, `dirty` is the last known count. O(1) from the mirror,
    /// O(providers) from the ledger.
    ///
    /// # Errors
    /// None of its own.
    pub async fn stats(&self) -> Result<Sourced<RosterStats>> {
        self.counted(async {
            let mirror = self.state.mirror();
            if mirror.is_believed() {
                let call = mirror.api()?.roster_stats(mirror.group());
                if let Some(counted) = self.believed(mirror.read(call, |counted| &counted.mirror).await)? {
                    let dirty = self.state.dirty();
                    return Ok(Sourced::mirror(RosterStats { dirty, ..counted.stats }));
                }
            }
            let (stats, _) = self.inner.counts(&self.state).await?;
            Ok(Sourced::ledger(stats))
        })
        .await
    }

    /// Lists providers, all or those in one state, in the order of the source. A provider that exists throughout is
    /// listed at least once. A listing that moves from the mirror to the ledger starts over. A page may be short or
    /// empty and still have a next one. Last heartbeats as in [`Roster::provider`]. O(page), and more for a rare state.
    ///
    /// # Errors
    /// `Invalid` for a cursor of another listing, or a limit outside 1..=1000.
    pub async fn providers(
        &self,
        state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Sourced<Page<ProviderView>>> {
        let limit = check_limit(page.limit)?;
        let (source, after) = match page.after.as_deref() {
            None => (Source::Mirror, None),
            Some(cursor) => match cursor.split_at_checked(1) {
                Some(("m", rest)) => (Source::Mirror, Some(rest.to_owned())),
                Some(("l", rest)) => (Source::Ledger, Some(rest.to_owned())),
                _ => return Err(bad_cursor(cursor)),
            },
        };
        self.counted(async {
            if source == Source::Mirror {
                let request = PageRequest {
                    after: after.clone(),
                    limit,
                };
                if let Some(mut page) = self.list_in_mirror(state, request).await? {
                    self.recall_heartbeats(&mut page.items).await;
                    return Ok(Sourced::mirror(page));
                }
            }
            let after = after.filter(|_| source == Source::Ledger);
            let page = self
                .inner
                .page(&self.state, state, &PageRequest { after, limit })
                .await?;
            Ok(Sourced::ledger(Page {
                items: self.views(page.items).await?,
                next: page.next.map(|next| format!("l{next}")),
            }))
        })
        .await
    }

    /// Reads the log forward, of one provider or all. Always from the ledger. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor of another listing, or a limit outside 1..=1000.
    pub async fn log(&self, provider: Option<&ProviderId>, page: &PageRequest) -> Result<Page<LogEntry>> {
        self.touch();
        self.exists().await?;
        self.inner.ledger().log(self.name(), provider, page).await
    }

    /// A provider in the mirror; `None` when the mirror is not trusted.
    pub(super) async fn look_in_mirror(&self, provider: &ProviderId) -> Result<Option<Option<MirroredProvider>>> {
        let mirror = self.state.mirror();
        if !mirror.is_believed() {
            return Ok(None);
        }
        let call = mirror.api()?.look(mirror.group(), std::slice::from_ref(provider));
        let looked = self.believed(mirror.read(call, |looked| &looked.mirror).await)?;
        Ok(looked.map(|looked| looked.providers.into_iter().next().flatten()))
    }

    /// The providers that can take work, from the mirror; `None` when it is not trusted.
    pub(super) async fn rank_in_mirror(&self, page: &PageRequest) -> Result<Option<Page<Candidate>>> {
        let (mirror, limit) = (self.state.mirror(), page.limit);
        let mut ranked = Page {
            items: Vec::new(),
            next: page.after.clone(),
        };
        for _ in 0..PAGES {
            if !mirror.is_believed() {
                return Ok(None);
            }
            let wanted = limit - u32::try_from(ranked.items.len()).unwrap_or(limit).min(limit - 1);
            let page = PageRequest {
                after: ranked.next.take(),
                limit: wanted,
            };
            let call = mirror.api()?.available(mirror.group(), &page);
            let Some(part) = self.believed(mirror.read(call, |part| &part.mirror).await)? else {
                return Ok(None);
            };
            ranked.items.extend(part.candidates);
            ranked.next = part.next;
            if ranked.next.is_none() || ranked.items.len() >= limit as usize {
                break;
            }
        }
        Ok(Some(ranked))
    }

    async fn list_in_mirror(
        &self,
        state: Option<ProviderState>,
        mut request: PageRequest,
    ) -> Result<Option<Page<ProviderView>>> {
        let mirror = self.state.mirror();
        let mut page = Page::default();
        for _ in 0..PAGES {
            if !mirror.is_believed() {
                return Ok(None);
            }
            let call = mirror.api()?.rows(mirror.group(), &request);
            let Some(part) = self.believed(mirror.read(call, |part| &part.mirror).await)? else {
                return Ok(None);
            };
            let seen = part
                .rows
                .into_iter()
                .filter(|seen| state.is_none_or(|state| is_in(seen, state)));
            page.items.extend(seen.map(view_of_seen));
            page.next = part.next.as_ref().map(|next| format!("m{next}"));
            request.after = part.next;
            if !page.items.is_empty() || request.after.is_none() {
                break;
            }
        }
        Ok(Some(page))
    }

    /// Views of the ledger's rows.
    async fn views(&self, rows: Vec<Provider>) -> Result<Vec<ProviderView>> {
        let fresh = match rows.iter().any(|row| row.online.is_some()) {
            true => self.inner.fresh_since(&self.state).await?,
            false => None,
        };
        let view = |row: Provider| ProviderView {
            reachable: row.online.is_some() && row.active && row.is_fresh(fresh),
            row: Provider {
                last_heartbeat_at: last_heard(row.last_heartbeat_at, &row),
                ..row
            },
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// The mirror's answer, if it is trusted. An outage of the mirror is not an error of the caller; an invalid request
    /// is.
    fn believed<T>(&self, answer: Result<(T, bool)>) -> Result<Option<T>> {
        match answer {
            Ok((answer, believed)) => Ok(Some(answer).filter(|_| believed)),
            Err(error) if error.kind() == ErrorKind::Invalid => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Counts a read by its source.
    async fn counted<T>(&self, read: impl Future<Output = Result<Sourced<T>>>) -> Result<Sourced<T>> {
        self.touch();
        self.exists().await?;
        let answer = read.await;
        let label = self.state.mirror().label();
        match &answer {
            Ok(Sourced { source, .. }) => {
                if *source == Source::Ledger {
                    meters::roster_fallback_read(label.clone());
                }
                meters::roster_read(label, source.as_str());
            }
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            Err(_) => meters::roster_read(label, "none"),
        }
        answer
    }
}

/// The last heartbeat, if the ledger knows it; going online is one.
fn last_heard(told: Option<StoreTime>, row: &Provider) -> Option<StoreTime> {
    told.max(row.last_online_at)
}

/// A view of the mirror's row. A provider whose tenure has ended is offline, as in the counts, although the ledger has
/// not followed.
fn view_of_seen(seen: MirroredProvider) -> ProviderView {
    let alive = seen.standing == Standing::Alive;
    ProviderView {
        reachable: alive && seen.row.active,
        row: Provider {
            online: seen.row.online.filter(|_| alive),
            ..seen.row
        },
    }
}

/// Whether a provider is in a state by the mirror: one whose tenure has ended is offline, although the ledger has not
/// followed.
fn is_in(seen: &MirroredProvider, state: ProviderState) -> bool {
    let alive = seen.standing == Standing::Alive;
    match state {
        ProviderState::Online => alive,
        ProviderState::Available => seen.is_available(),
        ProviderState::Busy => alive && !seen.row.has_room(),
        ProviderState::Offline => seen.row.active && !alive,
        ProviderState::Deactivated => !seen.row.active,
    }
}
