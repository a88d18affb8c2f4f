//! Catalogs: where others find the service. One actor owns the desired state of one registration.
