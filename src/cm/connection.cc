#include "cm/connection.h"

#include <rdma/ib_user_ioctl_verbs.h>

namespace softhca::cm {

bool is_datagram(const Connection& connection) { return connection.qp_type == IB_UVERBS_QPT_UD; }

}  // namespace softhca::cm
