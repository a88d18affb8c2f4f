# One application with its SQLite database on LiteFS, on three hosts: it runs on the primary, the other two are standbys, and
# only the primary is registered in Consul. See docs/guides/supervisor.md.
#
#   nomad job run deploy/nomad/music.nomad.hcl
#
# There is no `service` block: Nomad would register all three.
job "music" {
  type = "service"

  group "music" {
    count = 3

    # Two of them on one host would fail together.
    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    # One at a time; a replacement must be healthy (a replica is) before the next one.
    update {
      max_parallel     = 1
      health_check     = "task_states"
      min_healthy_time = "20s"
    }

    # A failed command ends the allocation with its exit code; this block decides about restarts.
    restart {
      attempts = 5
      interval = "5m"
      delay    = "5s"
      mode     = "delay"
    }

    network {
      mode = "host"
      port "http" {}
      port "litefs" {
        static = 20202
      }
    }

    volume "music" {
      type   = "host"
      source = "music"
    }

    task "music" {
      driver = "docker"

      # Longer than the stop budget of `tenure run` (4.5 s), which also fits Nomad's default of 5 s.
      kill_timeout = "10s"

      config {
        image        = "music:1"
        network_mode = "host"
        # Required for mounting.
        privileged = true
        devices = [
          { host_path = "/dev/fuse", container_path = "/dev/fuse" },
        ]
      }

      volume_mount {
        volume      = "music"
        destination = "/var/lib/music"
      }

      env {
        # The agent of this host: where the service is registered.
        CONSUL_HTTP_ADDR = "127.0.0.1:8500"
        # With a store, the service of a killed supervisor is removed after ttl + 5 s instead of a minute or more. For that, other
        # daemons must reach the agent, so use an address of the host that is on their list:
        # CONSUL_HTTP_ADDR            = "${attr.unique.network.ip-address}:8500"
        # TENURE_REGISTRATIONS_AGENTS = "10.0.0.0/8"
        # TENURE_STORE                = "http://tenure.internal:7717"
      }

      # A token that may register the service, renewed by Nomad. It is reloaded when it changes.
      # env { CONSUL_HTTP_TOKEN_FILE = "${NOMAD_SECRETS_DIR}/consul_token" }

      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
